"""The store of a benchmark: one record and one run folder for each cell, named by the cell's digest.

A store is a folder of a local or shared file system, or a URL that fsspec reaches: object storage, or the disks of
another machine. docs/benchmark.md shows what is in it. fsspec comes with torch; a protocol may need its own package
(``s3fs`` for ``s3://``).
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json, write_json
from indelible.bench.locks import is_locked, try_lock
from indelible.train.history import read_history

Json = Mapping[str, Any]
_RECORDS, _RUNS, _LOCKS, _FAILURES = "records", "runs", "locks", "failures"


class Store:
    """A store in a folder; ``place`` says where it is, as it can be opened again."""

    def __init__(self, root: str | Path) -> None:
        self.root, self.place = Path(root), str(root)

    def record(self, digest: str) -> Json | None:
        """Return the record of a finished cell; None when it is not finished."""
        return self._read(f"{_RECORDS}/{digest}.json")

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        return {path.stem for path in (self.root / _RECORDS).glob("*.json")}

    def keep_record(self, record: Json) -> None:
        """Write the record of a cell: from now on it is finished."""
        self._write(f"{_RECORDS}/{record['digest']}.json", record)
        self._delete(f"{_FAILURES}/{record['digest']}.json")

    def failure(self, digest: str) -> Json | None:
        """Return why the last attempt failed; None when none did."""
        return self._read(f"{_FAILURES}/{digest}.json")

    def keep_failure(self, digest: str, failure: Json) -> None:
        """Note why an attempt failed."""
        self._write(f"{_FAILURES}/{digest}.json", failure)

    def acquire(self, digest: str) -> BaseFileLock | None:
        """Take a cell's lock, or return None when another process has it."""
        return try_lock(self.root / _LOCKS / digest)

    def held(self, digest: str) -> bool:
        """Tell whether a process works on a cell."""
        return is_locked(self.root / _LOCKS / digest)

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a cell's run folder to work in."""
        folder = self._folder(digest)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder

    def reading(self, digest: str) -> Path:
        """Return the run folder of a finished cell."""
        return self._folder(digest)

    def last_row(self, digest: str) -> Json | None:
        """Return the last row of a run's history, as far as this machine knows it; None when there is none."""
        rows = read_history(self._folder(digest))
        return rows[-1] if rows else None

    def _folder(self, digest: str) -> Path:
        return self.root / _RUNS / digest

    def _read(self, name: str) -> Json | None:
        found: Json | None = read_json(self.root / name) if (self.root / name).exists() else None
        return found

    def _write(self, name: str, value: Json) -> None:
        write_json(self.root / name, value)

    def _delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


class RemoteStore(Store):
    """A store behind a URL.

    Training needs a folder, so a cell is done in a local store, whose locks keep the workers of one machine apart. A
    run folder is copied to the URL when its cell ends, well or not, and fetched by whoever needs it; records and
    failures are written there at once. Several machines work on one URL as workers of one driver (Ray): a cell whose
    machine is lost begins again elsewhere, while on a shared folder it goes on from its last checkpoint.

    Args:
        place: The URL, such as ``s3://bucket/bench``.
        scratch: Local folder to work in; by default one in the system's temporary folder, the same for every process
            of this machine, so that a model is fetched once.
    """

    def __init__(self, place: str, *, scratch: Path | None = None) -> None:
        from fsspec.core import url_to_fs

        named = hashlib.sha256(place.encode()).hexdigest()[:16]
        super().__init__(scratch or Path(tempfile.gettempdir()) / f"indelible-bench-{named}")
        self.place = place
        try:
            self.files, self.url = url_to_fs(place)
        except (ImportError, ValueError) as error:
            raise InputError(f"the store {place!r} cannot be opened: {error}") from error

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        self.files.invalidate_cache()
        return {Path(str(path)).stem for path in self.files.glob(f"{self.url}/{_RECORDS}/*.json")}

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a local folder with what is known of a cell; it is copied to the store at the end, well or not."""
        folder, there = self._folder(digest), f"{self.url}/{_RUNS}/{digest}"
        if not folder.exists():
            self._fetch(digest)
        try:
            yield folder
        finally:
            with suppress(FileNotFoundError):
                self.files.rm(there, recursive=True)
            if folder.exists():
                self.files.put(f"{folder}/", f"{there}/", recursive=True)

    def reading(self, digest: str) -> Path:
        """Return a local copy of the run folder of a finished cell."""
        if not (self._folder(digest) / "run.json").exists():
            self._fetch(digest)
        return self._folder(digest)

    def _fetch(self, digest: str) -> None:
        """Bring a run folder here; it appears whole, so that another worker of this machine never sees half of it."""
        folder, there = self._folder(digest), f"{self.url}/{_RUNS}/{digest}"
        self.files.invalidate_cache()
        folder.parent.mkdir(parents=True, exist_ok=True)
        arriving = Path(tempfile.mkdtemp(prefix=f".{digest[:16]}", dir=folder.parent))
        if self.files.exists(there):
            self.files.get(f"{there}/", f"{arriving}/", recursive=True)
        shutil.rmtree(folder, ignore_errors=True)  # half a run that another machine has finished since
        with suppress(OSError):  # another worker was quicker
            arriving.replace(folder)
        shutil.rmtree(arriving, ignore_errors=True)

    def _read(self, name: str) -> Json | None:
        self.files.invalidate_cache()
        try:
            found: Json = json.loads(self.files.cat_file(f"{self.url}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedFileError(f"{self.place}/{name} is not JSON. Delete it to do its cell again.") from error
        return found

    def _write(self, name: str, value: Json) -> None:
        path = f"{self.url}/{name}"
        self.files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self.files.pipe_file(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def _delete(self, name: str) -> None:
        with suppress(OSError):
            self.files.rm_file(f"{self.url}/{name}")


def open_store(place: str | Path) -> Store:
    """Open a store: a folder, or a URL such as ``s3://bucket/bench``."""
    return RemoteStore(str(place)) if "://" in str(place) else Store(place)
