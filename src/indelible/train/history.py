"""History of a run under way: one row per epoch, as JSON lines in its folder, and in TensorBoard if it is installed.

A finished run has its rows in ``run.json``.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError
from indelible.base.files import write_text
from indelible.base.records import plain

Row = Mapping[str, Any]
HISTORY = "history.jsonl"
TIME_FIELDS = ("seconds", "images_per_second")
"""What differs between two runs of the same settings; all else is the same to the bit."""


def write_history(folder: Path, rows: Sequence[Row]) -> None:
    """Write a run's rows, all of its phases', as JSON lines; not-a-number becomes null.

    The file is rewritten whole: it is small, and a resumed run must not keep rows beyond its checkpoint.
    """
    write_text(folder / HISTORY, "".join(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows))


def show_in_tensorboard(folder: Path, row: Row) -> None:
    """Add a row to the TensorBoard files of a run; without TensorBoard, do nothing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(str(folder / "tensorboard")) as board:
        for name, value in row.items():
            if isinstance(value, int | float) and name not in {"epoch", "step"}:
                board.add_scalar(name, value, row["step"])


def is_row(value: Any) -> bool:
    """Tell whether a JSON value can be a row of a history."""
    return isinstance(value, Mapping) and type(value.get("epoch", 0)) in {int, float}


def read_history(folder: Path) -> list[Row]:
    """Read the history of a run under way; empty when there is none. A line that is no row is a DamagedFileError."""
    path, rows, lines = folder / HISTORY, list[Row](), list[bytes]()
    with suppress(FileNotFoundError):  # not begun, or finished a moment ago
        lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row, why = json.loads(line), "is not a row of a history"
        except ValueError as error:
            row, why = None, f"is not JSON ({error!s:.60})"
        if not is_row(row):
            raise DamagedFileError(
                f"{path}: line {number} {why}. Restore it from a copy, or delete the file: the run's curves are lost, "
                "not its result."
            )
        rows.append(row)
    return rows
