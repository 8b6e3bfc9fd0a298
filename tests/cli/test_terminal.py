"""The live table of a benchmark: a WSR with its verdict."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indelible.bench.runner import Board
from indelible.bench.store import Store
from indelible.cli.terminal import LiveBoard, board_table
from tests.bench.micro import cells_of, write_preset


def _record(wsr: float, owned: bool) -> dict[str, Any]:
    measured = {"ba": 0.8, "wsr": wsr, "owned": owned, "p_value": 1e-9 if owned else 0.4}
    return {"measured": measured, "seconds": 2.0, "images_per_second": 100.0}


def test_every_wsr_has_its_verdict(tmp_path: Path) -> None:
    path = write_preset(tmp_path, change=("seeds = [0]", "seeds = [0, 1]"))
    cells = cells_of(path)[1]
    # APP is shown but for one of two seeds after FT, Vanilla never.
    held = {cell.digest: cell.method == "app" and (cell.attack is None or cell.seed == 0) for cell in cells}
    records: dict[str, Mapping[str, Any]] = {
        cell.digest: _record(0.5 if cell.attack else 1.0, owned=held[cell.digest]) for cell in cells
    }
    store = Store(tmp_path / "store")
    table = board_table(Board(cells, dict.fromkeys(records, "done"), records=records), store)
    shown = [list(column.cells) for column in table.columns][2:]
    assert shown == [["80.0", "80.0"], ["100.0 0/2 ✗", "100.0 2/2 ✓"], ["50.0 0/2 ✗", "50.0 1/2 ✓"]]
    assert "✓ the verdict shows ownership" in str(table.caption)

    cell = cells[0]
    live = LiveBoard(Board(cells, records={cell.digest: _record(0.932, owned=True)}), store, "t")
    assert live._line(cell, "done").endswith("BA 80.0 %, WSR 93.2 % (owned, p = 1e-9); 2.0 s, 100 images/s")
