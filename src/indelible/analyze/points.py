"""Measurements kept one by one, so that a long analysis that was broken off goes on where it was.

The first line of the file names what the measurements belong to; a file of other settings, another model or other data
is refused, never mixed in. A line that a killed process left unfinished is dropped.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError
from indelible.base.files import append_line, canonical_json, write_text
from indelible.base.records import plain

__all__ = ["POINTS", "Points"]

POINTS = "points.jsonl"


class Points:
    """Measured rows by key, in memory and - with a folder - on disk.

    Args:
        folder: Where ``points.jsonl`` is kept; None keeps rows in memory only.
        identity: Whatever decides the measurements, as JSON values.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self._path = None if folder is None else folder / POINTS
        self._rows: dict[str, Mapping[str, Any]] = {}
        head = json.dumps({"belongs_to": hashlib.sha256(canonical_json(plain(identity))).hexdigest()})
        if self._path is None:
            return
        lines = list(_whole_lines(self._path))
        if lines and lines[0] != head:
            raise InputError(
                f"{self._path} holds measurements of another model, other data or other settings. Choose another "
                "folder with --out, or delete it."
            )
        for line in lines[1:]:
            row = json.loads(line)
            self._rows[row["key"]] = row["value"]
        # Written anew: an unfinished last line must not swallow the next one.
        write_text(self._path, "".join(f"{line}\n" for line in [head, *lines[1:]]))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._rows[key]

    def items(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return all rows with their keys, in the order in which they were measured."""
        return list(self._rows.items())

    def add(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep one measurement; measured again, it replaces the earlier one."""
        kept = plain(value)
        self._rows[key] = kept
        if self._path is not None:
            append_line(self._path, json.dumps({"key": key, "value": kept}, allow_nan=False))


def _whole_lines(path: Path) -> Iterator[str]:
    """Yield the lines that end in a newline and are JSON."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            with suppress(json.JSONDecodeError):
                json.loads(line)
                yield line.rstrip("\n")
