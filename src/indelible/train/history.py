"""History of a run: one row per epoch in memory and as JSON lines in the run folder."""

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


class History:
    """The rows of a run so far, kept in ``history.jsonl`` of a folder if there is one.

    ``rows`` are those of earlier sessions, from the checkpoint; rows written after it are dropped. ``earlier`` are
    those of earlier phases, which the file shows first.
    """

    def __init__(self, folder: Path | None, rows: Sequence[Row] = (), earlier: Sequence[Row] = ()) -> None:
        self.rows: list[Row] = list(rows)
        self._earlier = list(earlier)
        self._path = None if folder is None else folder / "history.jsonl"
        self._write()

    def add(self, row: Row) -> None:
        """Add one row and write it down."""
        self.rows.append(plain(row))
        self._write()

    def _write(self) -> None:
        # Rewritten whole: it is small, and a resumed run must not keep rows beyond its checkpoint.
        if self._path is not None:
            write_text(
                self._path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in [*self._earlier, *self.rows])
            )


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
