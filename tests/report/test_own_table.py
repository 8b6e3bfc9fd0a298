"""A table of one's own, from outside the package: one file with one registration."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indelible.base.errors import InputError
from indelible.bench.measurement import results_of
from indelible.cli import main
from indelible.report import TABLES, measured_tables, reported_tables
from tests.report.results import make_results

FILE = """
from indelible.report import TABLES, Axis, Condition, Layout

MINE = TABLES.add(
    Layout(
        name="mine", title="Two attacks", caption="What FT and MCR leave.", presets=("my-preset",), summary=None,
        axes=(Axis(title="Way to embed", field="method", order=("app", "vanilla")),), grouped=False,
        only={"kind": "content"},
        conditions=(Condition(title="Tuning", attack="ft"), Condition(title="Path", attack="mcr")),
    )
)
"""
HEADINGS = "| Way to embed | Before BA | Before WSR | After Tuning | After Path |"
ROWS = [
    "| APP | **80.00** | 100.00 ✓ | **90.00** ✓ | **82.00** ✓ |",
    "| Vanilla | 79.00 | 100.00 ✓ | 20.00 ✓ | 12.00 ✓ |",
]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on the path with the file in it; what it registers is forgotten afterwards."""
    monkeypatch.setattr(TABLES, "_entries", dict(TABLES._entries))
    (tmp_path / "my_tables.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_tables", None)


def _results() -> dict[str, object]:
    found = make_results(preset="my-preset", methods=("vanilla", "app"))
    for cell in found["cells"]:
        if cell["method"] == "vanilla":
            cell["measured"]["ba"] = 0.79
    return found


def test_a_registered_layout_is_filled_with_the_results_of_its_preset(site: Path) -> None:
    __import__("my_tables")
    grid, accuracies = measured_tables([results_of(_results(), "x")])
    assert [column.heading for column in grid.columns] == ["Before BA", "Before WSR", "After Tuning", "After Path"]
    # FT leaves 90 % with APP and 20 % with Vanilla; MCR, the fifth attack, takes eight points more.
    assert {row.labels: [entry.measured_text for entry in row.entries] for row in grid.rows} == {
        ("APP",): ["80.00", "100.00", "90.00", "82.00"],
        ("Vanilla",): ["79.00", "100.00", "20.00", "12.00"],
    }
    assert [column.heading for column in accuracies.columns] == ["Before BA", "After Tuning", "After Path"]
    with pytest.raises(InputError, match="indelible bench run my-preset"):
        reported_tables(["mine"])


def _install(site: Path, value: str) -> None:
    """Write what pip writes for a package with one entry point."""
    info = site / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[indelible.tables]\nmine = {value}\n")


def test_the_command_finds_the_table_of_an_installed_package(site: Path) -> None:
    _install(site, "my_tables:MINE")
    results, out = site / "results.json", site / "table.md"
    results.write_text(json.dumps(_results()))
    assert main(["report", str(results), "--format", "markdown", "--out", str(out)]) == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "### Two attacks: my-preset"
    assert lines[4] == HEADINGS
    assert lines[6:8] == ROWS


@pytest.mark.parametrize(
    ("value", "reason"), [("my_tables:FILE", "cannot be loaded"), ("my_tables:Axis", "must be a Layout")]
)
def test_an_entry_point_that_is_no_layout_is_named(site: Path, value: str, reason: str) -> None:
    (site / "my_tables.py").write_text(FILE.replace("MINE = TABLES.add(", "MINE = ("))
    _install(site, value)
    with pytest.raises(InputError, match=rf"'mine' of the group 'indelible.tables' \({value}\) {reason}"):
        reported_tables()
