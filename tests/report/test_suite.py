"""The paper's row: the mean drop by hand, the order of columns, what does not count."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from indelible.attacks import ATTACKS
from indelible.bench.attack_suite import AttackRow, AttackSuite
from indelible.report.format import ABSENT
from indelible.report.suite import PAPER_ATTACKS, Suite, attacks_table, average_drop, suite, suite_table
from tests.report.runs import make_run, make_verdict


def test_the_mean_drop_of_the_papers_first_row() -> None:
    """Table 1, content, Vanilla: 99.56 before; 56.78, 74.58, 25.34, 48.14, 16.56, 21.02 after; AvgDrop 59.15 there."""
    after = [0.5678, 0.7458, 0.2534, 0.4814, 0.1656, 0.2102]
    assert average_drop(0.9956, after) == pytest.approx(0.5915, abs=1e-4)
    assert average_drop(0.9, [0.5, None]) == pytest.approx(0.4)
    assert average_drop(None, after) is None
    assert average_drop(0.9, []) is None


def test_rows_from_runs(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "v", "vanilla", metrics={"ba": 0.8, "wsr": 1.0})
    for name, wsr in (("distill", 0.0), ("nad", 0.5), ("ft", 0.7)):
        make_run(
            tmp_path / f"v-{name}", name, verb="attack", parent=parent,
            verdict=make_verdict(owned=True, ba=0.79, wsr=wsr, p_value=0.0),
        )  # fmt: skip
    (row,) = suite([tmp_path])
    assert list(row.after) == ["ft", "nad", "distill"]
    assert row.avg_drop == pytest.approx(0.4)  # (0.3 + 0.5) / 2: distillation is not among the paper's six
    assert row.to_json()["after"]["nad"] == {"ba": 0.79, "wsr": 0.5, "owned": True, "p_value": 0.0}
    assert (row.to_json()["owned"], row.to_json()["p_value"]) == (None, None)
    table = suite_table([row])
    assert [str(column.header) for column in table.columns] == [
        "Type", "Method", "%", "Before", "FT", "NAD", "AvgDrop"
    ]  # fmt: skip
    assert [list(column.cells)[1] for column in table.columns][3:] == ["100.0?", "70.0✓", "50.0✓", "40.0"]


def test_the_papers_row_fits_a_terminal_of_80_columns() -> None:
    after = dict.fromkeys((*PAPER_ATTACKS, "distill", "preprocess"), (0.781, 1.0))
    row = Suite(label="CW (certified watermark), trained", kind="unrelated", ba=0.777, wsr=1.0, after=after)
    console = Console(width=80, record=True, file=StringIO())
    console.print(suite_table([row]))
    text = console.export_text()
    assert "…" not in text
    assert text.count("78.1") == 6
    assert text.count("100.0") == 7


def test_a_row_for_every_attack_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    made = []
    for name in ATTACKS:
        verdict = make_verdict(owned=name == "ft", ba=0.79, wsr=1.0, p_value=0.0) if name != "fp" else None
        make_run(tmp_path / name, name, verb="attack", parent=tmp_path, verdict=verdict)
        within = name != "anp"
        made.append(
            AttackRow(
                attack=name, folder=str(tmp_path / name), accuracy=0.456, within=within, images=1_000_000, seconds=2
            )
        )
    rows = (*made, AttackRow(attack="new", refused="no BatchNorm"))
    found = AttackSuite(before=0.781, held_out=1000, ba_drop=0.02, rows=rows)
    console = Console(width=80, record=True, file=StringIO())
    console.print(attacks_table(found))
    lines = {line.split()[0]: line.split()[1:] for line in console.export_text().splitlines() if line.strip()}
    assert lines["ft"] == ["45.6", "1,000,000", "2", "79.0", "100.0", "yes"]
    assert lines["anp"] == ["45.6*", "1,000,000", "2", "79.0", "100.0", "no"]
    assert lines["fp"] == ["45.6", "1,000,000", "2", ABSENT, ABSENT, ABSENT]
    assert lines["new"] == [ABSENT] * 6
    bare = attacks_table(AttackSuite(before=0.781, held_out=1000, ba_drop=0.02, rows=(rows[1], rows[-1])))
    assert [str(column.header) for column in bare.columns] == ["Attack", "Held-out BA", "Passes", "Seconds"]
