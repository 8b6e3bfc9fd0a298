"""The paper's row: the mean drop by hand, the order of columns, what does not count."""

from pathlib import Path

import pytest

from indelible.report.suite import average_drop, suite, suite_table
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
    assert row.to_json()["after"]["nad"] == {"ba": 0.79, "wsr": 0.5}
    table = suite_table([row])
    assert [str(column.header) for column in table.columns] == [
        "Type", "Method", "%", "Before", "FT", "NAD", "AvgDrop", "DISTILL"
    ]  # fmt: skip
    assert [list(column.cells)[1] for column in table.columns][3:] == ["100.0", "70.0", "50.0", "40.0", "0.0"]
