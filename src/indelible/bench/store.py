"""The store of a benchmark: one record and one run folder for each cell, named by the cell's digest.

| path | what |
|---|---|
| ``records/<digest>.json`` | the record of a finished cell, small; written last |
| ``runs/<digest>/`` | its run folder: model, history, verdict, curve - or, under way, its checkpoint |
| ``locks/<digest>`` | who does it |
| ``failures/<digest>.json`` | why the last attempt failed |

A store is a folder of a local or shared file system, or a URL that fsspec understands
(:mod:`indelible.bench.remote`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from indelible.base.errors import DamagedFileError
from indelible.base.files import read_json, write_json
from indelible.bench.locks import PATIENCE, FileLock, Leases, Lock, Sign
from indelible.train.history import read_history

__all__ = ["LocalStore", "Locking", "Store", "open_store"]

Locking = Literal["auto", "flock", "lease"]
RECORDS, RUNS, LOCKS, FAILURES = "records", "runs", "locks", "failures"


class Store(Protocol):
    """Where the cells of a benchmark are kept."""

    @property
    def place(self) -> str:
        """Where it is, as it can be opened again."""
        ...

    def record(self, digest: str) -> Mapping[str, Any] | None:
        """Return the record of a finished cell; None when it is not finished."""
        ...

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        ...

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Write the record of a cell: from now on it is finished."""
        ...

    def failure(self, digest: str) -> Mapping[str, Any] | None:
        """Return why the last attempt failed; None when none did."""
        ...

    def keep_failure(self, digest: str, failure: Mapping[str, Any]) -> None:
        """Note why an attempt failed."""
        ...

    def acquire(self, digest: str, dead: Sequence[Any] | None = None) -> Lock | None:
        """Take a cell's lock, or return None when somebody else has it who is not known to be ``dead``."""
        ...

    def dead(self, digest: str) -> Sign | None:
        """Return the last sign of life of an owner that is dead and whose lock is still there; None otherwise."""
        ...

    def held(self, digest: str) -> bool:
        """Tell whether somebody works on a cell."""
        ...

    def working(self, digest: str) -> Any:
        """Open a cell's run folder to work in, as a context manager that yields its path."""
        ...

    def reading(self, digest: str) -> Any:
        """Open the run folder of a finished cell, as a context manager that yields its path."""
        ...

    def last_row(self, digest: str) -> Mapping[str, Any] | None:
        """Return the last row of a run's history; None when there is none."""
        ...


class LocalStore:
    """A store in a folder.

    Args:
        root: The folder.
        locking: ``"lease"`` for a file system that several machines share.
        patience: Seconds after which the owner of a lease is taken for dead.
    """

    def __init__(self, root: str | Path, *, locking: Locking = "auto", patience: float = PATIENCE) -> None:
        self.root = Path(root)
        self._leases: Leases | None = None
        if locking == "lease":
            from indelible.bench.remote import file_system

            files, folder = file_system(str(self.root.resolve() / LOCKS))
            self._leases = Leases(files, folder, patience=patience)

    @property
    def place(self) -> str:
        """Where it is, as it can be opened again."""
        return str(self.root)

    def record(self, digest: str) -> Mapping[str, Any] | None:
        """Return the record of a finished cell; None when it is not finished."""
        return _read(self.root / RECORDS / f"{digest}.json")

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        return {path.stem for path in (self.root / RECORDS).glob("*.json")}

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Write the record of a cell: from now on it is finished."""
        write_json(self.root / RECORDS / f"{record['digest']}.json", record)
        (self.root / FAILURES / f"{record['digest']}.json").unlink(missing_ok=True)

    def failure(self, digest: str) -> Mapping[str, Any] | None:
        """Return why the last attempt failed; None when none did."""
        return _read(self.root / FAILURES / f"{digest}.json")

    def keep_failure(self, digest: str, failure: Mapping[str, Any]) -> None:
        """Note why an attempt failed."""
        write_json(self.root / FAILURES / f"{digest}.json", failure)

    def acquire(self, digest: str, dead: Sequence[Any] | None = None) -> Lock | None:
        """Take a cell's lock, or return None when somebody else has it who is not known to be ``dead``."""
        if self._leases is not None:
            return self._leases.acquire(digest, dead)
        return FileLock.acquire(self.root / LOCKS / digest)

    def dead(self, digest: str) -> Sign | None:
        """Return the last sign of life of an owner that is dead and whose lock is still there; None otherwise."""
        return None if self._leases is None else self._leases.dead(digest)

    def held(self, digest: str) -> bool:
        """Tell whether somebody works on a cell."""
        if self._leases is not None:
            return self._leases.held(digest)
        return FileLock.held(self.root / LOCKS / digest)

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


def open_store(place: str | Path, *, locking: Locking = "auto", patience: float = PATIENCE) -> Store:
    """Open a store: a folder, or a URL such as ``s3://bucket/bench``."""
    if "://" in str(place):
        from indelible.bench.remote import RemoteStore

        return RemoteStore(str(place), patience=patience)
    return LocalStore(place, locking=locking, patience=patience)


def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, Mapping):
        raise DamagedFileError(f"{path} does not hold an object. Delete it to do its cell again.")
    return found
