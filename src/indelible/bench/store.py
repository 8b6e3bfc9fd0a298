"""The store of a benchmark: a run folder for each cell, named by the cell's digest.

A store is a folder of a local or shared file system, or a URL that fsspec reaches: object storage, or the disks of
another machine. docs/benchmark.md shows what is in it. fsspec comes with torch; a protocol may need its own package
(``s3fs`` for ``s3://``).
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock
from fsspec.core import url_to_fs

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_json
from indelible.bench.locks import is_locked, try_lock
from indelible.bench.measurement import CELLS, exported
from indelible.train.run_folder import RUN_FILE, Json, Run, history_of

_LOCKS, _FAILURES = "locks", "failures"


class Store:
    """The store at ``place``.

    Training needs a folder. Behind a URL a cell is done in ``scratch``, whose locks keep the workers of one machine
    apart; its run folder is copied to the URL when the cell ends, well or not, and fetched by whoever needs it. Several
    machines work on one URL as workers of one driver (Ray): a cell whose machine is lost begins again elsewhere, while
    on a shared folder it goes on from its last checkpoint.

    Args:
        place: A folder, or a URL such as ``s3://bucket/bench``.
        scratch: For a URL: local folder to work in; by default one in the system's temporary folder, the same for every
            process of this machine, so that a model is fetched once.
        earlier: Records of cells that were done for another store, whose run folders may be gone.
    """

    def __init__(self, place: str | Path, *, scratch: Path | None = None, earlier: Iterable[Json] = ()) -> None:
        self.place, self.root = str(place), Path(place)
        self.earlier = {str(record["digest"]): record for record in earlier}
        self.remote = "://" in self.place
        if self.remote:
            named = hashlib.sha256(self.place.encode()).hexdigest()[:16]
            self.root = scratch or Path(tempfile.gettempdir()) / f"indelible-bench-{named}"
        try:
            self.files, self.url = url_to_fs(self.place)
        except (ImportError, ValueError) as error:
            raise InputError(f"the store {self.place!r} cannot be opened: {error}") from error

    def finished(self) -> set[str]:
        """Return the digests of all cells that were finished in this store."""
        self.files.invalidate_cache()
        found = map(Path, self.files.find(f"{self.url}/{CELLS}"))
        return {path.parent.name for path in found if path.name == RUN_FILE}

    def record(self, digest: str) -> Json | None:
        """Return a cell that was finished in this store or earlier as it is exported; None when it is not finished."""
        if digest in self.earlier:
            return self.earlier[digest]
        found = self._read(f"{CELLS}/{digest}/{RUN_FILE}")
        return None if found is None else exported(Run.of(found, self._folder(digest)))

    def records(self) -> list[Json]:
        """Return all records, in the order of their digests."""
        found = map(self.record, sorted(self.finished() | self.earlier.keys()))
        return [record for record in found if record is not None]

    def failure(self, digest: str) -> Json | None:
        """Return why the last attempt failed; None when none did."""
        return self._read(f"{_FAILURES}/{digest}.json")

    def keep_failure(self, digest: str, failure: Json) -> None:
        """Note why an attempt failed."""
        path = self.root / _FAILURES / f"{digest}.json"
        write_json(path, failure)
        if self.remote:
            self._copy(path)

    def acquire(self, digest: str) -> BaseFileLock | None:
        """Take a cell's lock, or return None when another process has it."""
        return try_lock(self.root / _LOCKS / digest)

    def held(self, digest: str) -> bool:
        """Tell whether a process works on a cell."""
        return is_locked(self.root / _LOCKS / digest)

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a cell's run folder to work in, with what is known of the cell."""
        folder = self._folder(digest)
        if self.remote and not folder.exists():
            self._fetch(digest)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield folder
        finally:
            if self.remote:
                with suppress(FileNotFoundError):
                    self.files.rm(f"{self.url}/{CELLS}/{digest}", recursive=True)
                inside = [path for path in folder.rglob("*") if path.is_file()]
                # What says that the cell is finished comes last there too.
                for path in sorted(inside, key=lambda path: path.name == RUN_FILE):
                    self._copy(path)
        with suppress(OSError):
            self.files.rm_file(f"{self.url}/{_FAILURES}/{digest}.json")

    def reading(self, digest: str) -> Path:
        """Return the run folder of a finished cell, or a local copy of it."""
        if self.remote and not Run.finished(self._folder(digest)):
            self._fetch(digest)
        return self._folder(digest)

    def last_row(self, digest: str) -> Json | None:
        """Return the last row of a run's history, as far as this machine knows it; None when there is none."""
        rows = history_of(self._folder(digest))
        return rows[-1] if rows else None

    def _folder(self, digest: str) -> Path:
        return self.root / CELLS / digest

    def _fetch(self, digest: str) -> None:
        """Bring a run folder here; it appears whole, so that another worker of this machine never sees half of it."""
        folder, there = self._folder(digest), f"{self.url}/{CELLS}/{digest}"
        self.files.invalidate_cache()
        folder.parent.mkdir(parents=True, exist_ok=True)
        arriving = Path(tempfile.mkdtemp(prefix=f".{digest[:16]}", dir=folder.parent))
        if self.files.exists(there):
            self.files.get(f"{there}/", f"{arriving}/", recursive=True)
        shutil.rmtree(folder, ignore_errors=True)  # half a run that another machine has finished since
        with suppress(OSError):  # another worker was quicker
            arriving.replace(folder)
        shutil.rmtree(arriving, ignore_errors=True)

    def _copy(self, path: Path) -> None:
        """Copy a local file of the store to the URL."""
        target = f"{self.url}/{path.relative_to(self.root).as_posix()}"
        self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self.files.put_file(str(path), target)

    def _read(self, name: str) -> Json | None:
        self.files.invalidate_cache()
        try:
            found: Json = json.loads(self.files.cat_file(f"{self.url}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedFileError(f"{self.place}/{name} is not JSON. Delete it to do its cell again.") from error
        return found
