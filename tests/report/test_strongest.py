"""The strongest attack: the worst verdict within a budget, from hand-made runs."""

from pathlib import Path

import pytest

from indelible.bench.attack_suite import severity, strongest
from indelible.bench.measurement import of_run
from indelible.report import write_report
from indelible.report.documents import strongest_attacks
from indelible.report.model_stages import collect
from indelible.train.run_folder import Run
from tests.report.runs import SECRET, make_run, make_verdict

# Attack, test BA, WSR, p, owned, and held-out accuracy before and after where it is of a suite. Before: BA 80 %.
ROWS = (
    ("ft", 0.79, 0.20, 1e-9, True, None),
    ("fp", 0.78, 0.30, 1e-7, True, None),
    ("nad", 0.77, 0.10, 0.3, False, None),
    ("anp", 0.70, 0.01, 0.9, False, (0.80, 0.785)),
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    parent = make_run(
        tmp_path / "app", "app", settings={"eps": 0.02}, metrics={"ba": 0.8, "wsr": 1.0},
        verdict=make_verdict(owned=True, ba=0.8, wsr=1.0, p_value=1e-16),
    )  # fmt: skip
    for name, ba, wsr, value, owned, held in ROWS:
        kept = {} if held is None else {"held_out": {"images": 10, "before": held[0], "after": held[1]}}
        make_run(
            tmp_path / f"app-{name}", name, verb="attack", parent=parent, metrics=kept,
            verdict=make_verdict(owned=owned, ba=ba, wsr=wsr, p_value=value),
        )  # fmt: skip
    return tmp_path


def test_verdicts_from_the_worst_on() -> None:
    """Not owned before owned; then by p, the larger first; then by WSR, the lower first."""
    verdicts = [
        make_verdict(owned=False, wsr=0.9, p_value=0.4), make_verdict(owned=False, wsr=0.1, p_value=0.3),
        make_verdict(owned=True, wsr=0.5, p_value=1e-7), make_verdict(owned=True, wsr=0.1, p_value=1e-16),
        make_verdict(owned=True, wsr=0.2, p_value=1e-16),
    ]  # fmt: skip
    turned = verdicts[::-1]
    assert sorted(turned, key=severity) == verdicts


@pytest.mark.parametrize(
    ("ba_drop", "title", "cost", "within"),
    [
        (0.005, None, 0.0, 0),
        (0.01, "FT", 0.01, 1),
        (0.015, "ANP", 0.015, 2),  # 10 points of test BA, but 1.5 of the images that a suite kept back
        (0.03, "ANP", 0.015, 4),
    ],
)
def test_the_worst_within_the_budget(runs: Path, ba_drop: float, title: str | None, cost: float, within: int) -> None:
    ((_, row),) = strongest_attacks(collect([runs]), ba_drop)
    assert (None if row.stage is None else row.stage.column) == title
    assert row.cost == pytest.approx(cost)
    assert (row.judged, row.within) == (4, within)


def test_without_a_suite_test_images_tell_the_cost(runs: Path) -> None:
    """FP at 2 points has a larger p than FT at 1, though a higher WSR; NAD at 3 is not owned."""
    entries = collect([runs / f"app-{name}" for name in ("ft", "fp", "nad")])
    titles = [row.stage.column for drop in (0.02, 0.03) for _, row in strongest_attacks(entries, drop) if row.stage]
    assert titles == ["FP", "NAD"]


def test_a_suite_counts_its_own_runs_only(runs: Path) -> None:
    found = [of_run(Run.load(runs / f"app-{name}")) for name, *_ in ROWS]
    worst = strongest(found, 0.02).stage
    assert worst is not None
    assert worst.attack == "anp"
    assert strongest(found, 0.01).stage is None


def test_the_page_names_it(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs], tmp_path / "page.html", samples=False).read_text(encoding="utf-8")
    assert "The strongest attack" in page
    assert "at most 2.0 points of accuracy" in page
    assert "BA 70.0 %, WSR 1.0 %; not shown" in page
    assert "3 of 4 attacks stayed within the budget" in page
    none = write_report([runs], tmp_path / "none.html", samples=False, ba_drop=0.0).read_text(encoding="utf-8")
    assert "none of 4 attacks stayed within that budget" in none
    alone = write_report([runs / "app-ft"], tmp_path / "alone.html", samples=False).read_text(encoding="utf-8")
    assert "The strongest attack" not in alone
    assert SECRET.hex() not in page
