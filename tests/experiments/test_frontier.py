"""The frontier from made-up records: costs by hand, means over kinds and seeds, and whose control is whose."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontier import Frontier, frontier, main
from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import of_cells

FAST: dict[str, Any] = {"rows": 16, "clean_rows": 16, "every": 2}


def _cell(
    label: str, wsr: float, attack: str | None = None, *, kind: str = "content", seed: int = 0, **own: Any
) -> Any:
    name = "vanilla" if label == "vanilla" else "app"
    model = {"method": name, "method_settings": {} if name == "vanilla" else own, "train": {"batch_size": 128}}
    return {
        "dataset": "d", "architecture": "net", "kind": kind, "method": label, "attack": attack, "seed": seed,
        "settings": {"attack": attack} if attack else model,
        "measured": {"ba": 0.8 if attack else 0.9, "wsr": wsr, "owned": wsr > 0.5},
    }  # fmt: skip


def _pair(label: str, wsr: float, **more: Any) -> list[Any]:
    return [_cell(label, 1.0, **more), _cell(label, wsr, "ft", **more), _cell(label, wsr / 2, "nad", **more)]


CELLS = [
    *_pair("vanilla", 0.2),
    *_pair("exact", 0.9, rows=32, clean_rows=32),
    *_pair("fast", 0.8, **FAST),
    *_pair("fast", 1.0, **FAST, kind="noise", seed=1),
    *_pair("thin", 0.7, rows=12, clean_rows=8, every=2),
    *_pair("control", 0.5, **FAST, eps=0.0),
    _cell("unfinished", 1.0, **FAST, alpha=0.5),
]  # fmt: skip


def test_costs_by_hand_and_means() -> None:
    """Of 128 rows: 2 x 64 more; 2 x 32 in every second step; 2 x 20 there; 32 there."""
    made = frontier(of_cells(CELLS))
    costs = {spot.label: spot.cost for spot in made.spots}
    assert costs == {"vanilla": 1.0, "control": 1.125, "thin": 1.15625, "fast": 1.25, "exact": 2.0}
    assert list(costs.values()) == sorted(costs.values())
    fast = next(spot for spot in made.spots if spot.label == "fast")
    assert (fast.low, fast.high, fast.runs) == (0.8, 1.0, 2)
    assert {spot.label: (spot.owned, spot.verdicts) for spot in made.spots} == {
        "vanilla": (0, 1), "control": (0, 1), "thin": (1, 1), "fast": (2, 2), "exact": (1, 1),
    }  # fmt: skip
    assert [fast.wsr, fast.ba, fast.ba_after] == pytest.approx([0.9, 0.9, 0.8])


def test_a_control_has_the_same_exposure() -> None:
    controls = {spot.label: spot.control for spot in frontier(of_cells(CELLS)).spots}
    assert controls == {"vanilla": None, "control": None, "thin": None, "fast": "control", "exact": None}


def test_published_records_hold_settings_that_are_no_more() -> None:
    older = [*_pair("vanilla", 0.2), *_pair("fast", 0.8, **FAST, keep=1, ascent_rows=None)]
    assert {spot.label: spot.cost for spot in frontier(of_cells(older)).spots} == {"vanilla": 1.0, "fast": 1.25}
    with pytest.raises(UnknownNameError, match="keep"):
        frontier(of_cells([*_pair("vanilla", 0.2), *_pair("fast", 0.8, **FAST, keep=4)]))


def test_best_leaves_out_what_costs_more_and_keeps_less() -> None:
    cells = [*CELLS, *_pair("worse", 0.6, rows=24, clean_rows=24)]
    assert [spot.label for spot in frontier(of_cells(cells)).best()] == ["thin", "fast"]


def test_other_attacks_and_kinds() -> None:
    halves = {spot.label: spot.wsr for spot in frontier(of_cells(CELLS), attack="nad").spots}
    assert halves["exact"] == 0.45
    assert [spot.label for spot in frontier(of_cells(CELLS), kinds=["noise"]).spots] == ["fast"]
    with pytest.raises(InputError, match="anp"):
        frontier(of_cells(CELLS), attack="anp")
    with pytest.raises(UnknownNameError, match="content"):
        frontier(of_cells(CELLS), kinds=["contents"])


def test_there_and_back_and_words() -> None:
    made = frontier(of_cells(CELLS))
    assert Frontier.from_json(made.to_json()) == made
    assert made.spots[0].label == "vanilla"
    assert "WSR 90.0 % after FT (80.0 to 100.0, 2 models, 2 of 2 owned)" in " ".join(made.sentences())
    assert "with eps 0 at the same exposure WSR 50.0 %" in " ".join(made.sentences())


def test_spots_of_other_kinds_and_seeds_are_named() -> None:
    made = frontier(of_cells(CELLS))
    assert {spot.label: spot.over for spot in made.spots}["fast"] == ("content 0", "noise 1")
    assert "Not all are of the same kinds and seeds: vanilla content 0;" in made.sentences()[-1]
    alike = frontier(of_cells(CELLS), kinds=["content"])
    assert len(alike.sentences()) == len(alike.spots) == 5
    assert made.spots[-2].over == ("content 0", "noise 1")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    records, out = tmp_path / "records.json", tmp_path / "out"
    records.write_text(json.dumps({"cells": CELLS}))
    main([str(records), "--out", str(out), "--kind", "content,noise"])
    assert "exact: 2.00 x plain training" in capsys.readouterr().out
    assert (out / "frontier.json").is_file()
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
