"""The store of a benchmark: one record and one run folder for each cell, named by the cell's digest.

| path | what |
|---|---|
| ``records/<digest>.json`` | the record of a finished cell, small; written last |
| ``runs/<digest>/`` | its run folder: model, history, verdict, curve - or, under way, its checkpoint |
| ``locks/<digest>`` | who does it |
| ``failures/<digest>.json`` | why the last attempt failed |

A store is a folder of a local or shared file system, or a URL that fsspec understands
(:mod:`indelible.bench.remote_store`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from indelible.base.errors import DamagedFileError
from indelible.base.files import read_json, write_json
from indelible.bench.locks import is_locked, try_lock
from indelible.train.history import read_history

RECORDS, RUNS, LOCKS, FAILURES = "records", "runs", "locks", "failures"


class Store:
    """A store in a folder."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def place(self) -> str:
        """Where it is, as it can be opened again."""
        return str(self.root)

    def record(self, digest: str) -> Mapping[str, Any] | None:
        """Return the record of a finished cell; None when it is not finished."""
        return self._read(f"{RECORDS}/{digest}.json")

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        return {path.stem for path in (self.root / RECORDS).glob("*.json")}

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Write the record of a cell: from now on it is finished."""
        self._write(f"{RECORDS}/{record['digest']}.json", record)
        self._forget_failure(str(record["digest"]))

    def failure(self, digest: str) -> Mapping[str, Any] | None:
        """Return why the last attempt failed; None when none did."""
        return self._read(f"{FAILURES}/{digest}.json")

    def keep_failure(self, digest: str, failure: Mapping[str, Any]) -> None:
        """Note why an attempt failed."""
        self._write(f"{FAILURES}/{digest}.json", failure)

    def acquire(self, digest: str) -> BaseFileLock | None:
        """Take a cell's lock, or return None when another process has it."""
        return try_lock(self.root / LOCKS / digest)

    def held(self, digest: str) -> bool:
        """Tell whether a process works on a cell."""
        return is_locked(self.root / LOCKS / digest)

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a cell's run folder to work in."""
        folder = self.root / RUNS / digest
        folder.mkdir(parents=True, exist_ok=True)
        yield folder

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        """Yield the run folder of a finished cell."""
        yield self.root / RUNS / digest

    def last_row(self, digest: str) -> Mapping[str, Any] | None:
        """Return the last row of a run's history; None when there is none."""
        rows = read_history(self.root / RUNS / digest)
        return rows[-1] if rows else None

    def _read(self, name: str) -> Mapping[str, Any] | None:
        path = self.root / name
        if not path.exists():
            return None
        found = read_json(path)
        if not isinstance(found, Mapping):
            raise DamagedFileError(f"{path} does not hold an object. Delete it to do its cell again.")
        return found

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        write_json(self.root / name, value)

    def _forget_failure(self, digest: str) -> None:
        (self.root / FAILURES / f"{digest}.json").unlink(missing_ok=True)


def open_store(place: str | Path) -> Store:
    """Open a store: a folder, or a URL such as ``s3://bucket/bench``."""
    if "://" in str(place):
        from indelible.bench.remote_store import RemoteStore

        return RemoteStore(str(place))
    return Store(place)
