"""The picture of price against proof: which seeds count, points lost and the worst p by hand."""

from pathlib import Path
from typing import Any

import pytest

from draw_price import ATTACKS, drawing, main, spot_afterwards, spots_of


def cells(method: str, seed: int, ba: float, **p_values: float) -> list[dict[str, Any]]:
    """A model and its attacks; p = 1e-9 where none is given."""
    return [
        {
            "kind": "content", "method": method, "seed": seed, "attack": attack,
            "measured": {"ba": ba, "p_value": p_values.get(attack or "before", 1e-9)},
        }
        for attack in ATTACKS
    ]  # fmt: skip


def test_points_lost_and_worst_p_by_hand() -> None:
    plain = [cells("unmarked", seed, ba)[0] | {"attack": None} for seed, ba in ((100, 0.8), (101, 0.77))]
    found = spots_of(
        [
            *plain,
            *cells("app", 100, 0.79, nnl=1e-7),
            *cells("app", 101, 0.776),
            *cells("app", 102, 0.7),  # no unmarked model of this seed
            *cells("vanilla", 100, 0.78, ft=0.1)[:-1],  # an attack is missing
            *[cell | {"kind": "noise"} for cell in cells("control", 100, 0.5)],
        ]
    )
    (spot,) = found
    assert spot.name.startswith("APP")
    assert spot.lost == pytest.approx((1.0, -0.6))
    assert spot.worst == pytest.approx((-7.0, -9.0))
    assert "0.2 points, p = 1e-08 (2 seeds)" in drawing(found).alt


def test_marks_in_trained_models_by_hand() -> None:
    def rows(seed: int, ba: float, **p_values: float) -> list[dict[str, Any]]:
        return [
            {
                "trial": "default",
                "seed": seed,
                "attack": attack,
                "ba": ba,
                "ba_before": 0.8,
                "p_value": p_values.get(attack or "", 1e-9),
            }
            for attack in ATTACKS
        ]

    other = [row | {"trial": "another"} for row in rows(108, 0.5)]
    spot = spot_afterwards([*rows(105, 0.79, mcr=1e-6), *rows(106, 0.804), *rows(107, 0.7)[:-1], *other])
    assert spot.lost == pytest.approx((1.0, -0.4))
    assert spot.worst == pytest.approx((-6.0, -9.0))


def test_the_committed_records_give_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path / "price.png")])
    assert (tmp_path / "price.png").read_bytes().startswith(b"\x89PNG")
    assert "Vanilla" in capsys.readouterr().out
