"""History of a run: one row per epoch, as JSON lines in the run folder, and in TensorBoard if it is installed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError
from indelible.base.files import write_text
from indelible.base.records import plain

Row = Mapping[str, Any]
TIME_FIELDS = ("seconds", "images_per_second")
"""What differs between two runs of the same settings; all else is the same to the bit."""


def write_history(folder: Path, rows: Sequence[Row]) -> None:
    """Write a run's rows, all of its phases', as JSON lines; not-a-number becomes null.

    The file is rewritten whole: it is small, and a resumed run must not keep rows beyond its checkpoint.
    """
    write_text(folder / "history.jsonl", "".join(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows))


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


def read_history(folder: Path) -> list[Row]:
    """Read the history of a run; empty when there is none. A line that is not a row is a DamagedFileError."""
    path = folder / "history.jsonl"
    if not path.exists():
        return []
    rows: list[Row] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row, why = json.loads(line), "is not a row of a history"
        except ValueError as error:
            row, why = None, f"is not JSON ({error!s:.60})"
        if not isinstance(row, Mapping) or type(row.get("epoch", 0)) not in {int, float}:
            raise DamagedFileError(
                f"{path}: line {number} {why}. Restore it from a copy, or delete the file: the run's curves are lost, "
                "not its result."
            )
        rows.append(row)
    return rows
