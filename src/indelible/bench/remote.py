"""A store on anything that fsspec reaches: object storage, or the disks of another machine.

Training needs a folder, so a cell is done in a local scratch folder: what the store has of it is fetched first, and
while it is done its files (history, checkpoint, results of finished phases) are copied to the store whenever they have
changed. Every one of them is written whole, so copies are whole too; whoever takes a lost cell over goes on from the
last copy. Cells are locked by leases.

fsspec comes with torch; a protocol may need its own package (``s3fs`` for ``s3://``).
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.locks import PATIENCE, Leases, Lock, Sign

__all__ = ["RemoteStore", "file_system"]

RECORDS, RUNS, LOCKS, FAILURES = "records", "runs", "locks", "failures"
_COPY_SECONDS = 30.0
_TEMPORARY = ".part"


def file_system(place: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL or path, and the path on it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise InputError("a shared store needs fsspec, which comes with torch: pip install fsspec") from error
    try:
        files, path = url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise InputError(f"the store {place!r} cannot be opened: {error}") from error
    return files, str(path)


class RemoteStore:
    """A store behind a URL.

    Args:
        place: The URL, such as ``s3://bucket/bench``.
        patience: Seconds after which the owner of a lease is taken for dead.
        scratch: Local folder to work in; by default one in the system's temporary folder, the same for every process
            of this machine, so that a model is fetched once.
        copy_seconds: How often a cell under way is copied to the store.
    """

    def __init__(
        self, place: str, *, patience: float = PATIENCE, scratch: Path | None = None,
        copy_seconds: float = _COPY_SECONDS,
    ) -> None:  # fmt: skip
        self._place, self.copy_seconds = place, copy_seconds
        self.files, self.root = file_system(place)
        named = hashlib.sha256(place.encode()).hexdigest()[:16]
        self.scratch = scratch or Path(tempfile.gettempdir()) / f"indelible-bench-{named}"
        self._leases = Leases(self.files, f"{self.root}/{LOCKS}", patience=patience)

    @property
    def place(self) -> str:
        """Where it is, as it can be opened again."""
        return self._place

    def record(self, digest: str) -> Mapping[str, Any] | None:
        """Return the record of a finished cell; None when it is not finished."""
        return self._read(f"{RECORDS}/{digest}.json")

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        self.files.invalidate_cache()
        return {Path(str(path)).stem for path in self.files.glob(f"{self.root}/{RECORDS}/*.json")}

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Write the record of a cell: from now on it is finished."""
        self._write(f"{RECORDS}/{record['digest']}.json", record)
        with contextlib.suppress(OSError):
            self.files.rm_file(f"{self.root}/{FAILURES}/{record['digest']}.json")

    def failure(self, digest: str) -> Mapping[str, Any] | None:
        """Return why the last attempt failed; None when none did."""
        return self._read(f"{FAILURES}/{digest}.json")

    def keep_failure(self, digest: str, failure: Mapping[str, Any]) -> None:
        """Note why an attempt failed."""
        self._write(f"{FAILURES}/{digest}.json", failure)

    def acquire(self, digest: str, dead: Sequence[Any] | None = None) -> Lock | None:
        """Take a cell's lock, or return None when somebody else has it who is not known to be ``dead``."""
        return self._leases.acquire(digest, dead)

    def dead(self, digest: str) -> Sign | None:
        """Return the last sign of life of an owner that is dead and whose lease is still there; None otherwise."""
        return self._leases.dead(digest)

    def held(self, digest: str) -> bool:
        """Tell whether somebody works on a cell."""
        return self._leases.held(digest)

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a local folder with what the store has of a cell; changes are copied back, now and then and at the end.

        When the block raises, what is there is copied too: the next attempt goes on from it.
        """
        folder = self.scratch / RUNS / digest
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier owner on this machine; the store knows better
        self._fetch(digest, folder)
        copies = _Copies(self.files, folder, f"{self.root}/{RUNS}/{digest}")
        ended = threading.Event()

        def keep_copying() -> None:
            while not ended.wait(self.copy_seconds):
                with contextlib.suppress(OSError):  # the store is away for a moment
                    copies.update()

        thread = threading.Thread(target=keep_copying, name="copies", daemon=True)
        thread.start()
        try:
            yield folder
        finally:
            ended.set()
            thread.join()
            copies.update()

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        """Yield a local copy of the run folder of a finished cell."""
        folder = self.scratch / RUNS / digest
        if not (folder / "run.json").exists():
            self._fetch(digest, folder)
        yield folder

    def last_row(self, digest: str) -> Mapping[str, Any] | None:
        """Return the last row of a run's history, as of the last copy; None when there is none."""
        try:
            lines = self.files.cat_file(f"{self.root}/{RUNS}/{digest}/history.jsonl").splitlines()
            row: Mapping[str, Any] | None = json.loads(lines[-1]) if lines else None
        except (OSError, ValueError):
            return None
        return row

    def _fetch(self, digest: str, folder: Path) -> None:
        """Bring a run folder here; it appears whole, so that another worker of this machine never sees half of it."""
        there = f"{self.root}/{RUNS}/{digest}"
        self.files.invalidate_cache()
        folder.parent.mkdir(parents=True, exist_ok=True)
        arriving = Path(tempfile.mkdtemp(prefix=f".{digest[:16]}", dir=folder.parent))
        for path in self.files.find(there):
            target = arriving / str(path).split(f"{digest}/", 1)[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            self.files.get_file(path, str(target))
        with contextlib.suppress(OSError):  # another worker was quicker
            arriving.replace(folder)
        shutil.rmtree(arriving, ignore_errors=True)

    def _read(self, name: str) -> Mapping[str, Any] | None:
        self.files.invalidate_cache()
        try:
            found = json.loads(self.files.cat_file(f"{self.root}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedFileError(f"{self._place}/{name} is not JSON. Delete it to do its cell again.") from error
        return found if isinstance(found, Mapping) else None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        path = f"{self.root}/{name}"
        self.files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self.files.pipe_file(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


class _Copies:
    """The files of a folder that have changed since they were last copied."""

    def __init__(self, files: Any, folder: Path, there: str) -> None:
        self.files, self.folder, self.there = files, folder, there
        self._known = self._stamps()

    def _stamps(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in self.folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # replaced at this moment
                if path.is_file() and path.suffix != _TEMPORARY:
                    state = path.stat()
                    found[path.relative_to(self.folder).as_posix()] = (state.st_mtime_ns, state.st_ino)
        return found

    def update(self) -> None:
        """Copy what is new or changed, and remove what is gone; ``run.json``, which ends a run, comes last."""
        now = self._stamps()
        for name in sorted(now, key=lambda name: (name == "run.json", name)):
            if self._known.get(name) != now[name]:
                target = f"{self.there}/{name}"
                self.files.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
                try:
                    self.files.put_file(str(self.folder / name), target)
                except FileNotFoundError:
                    continue
                self._known[name] = now[name]
        for name in set(self._known) - set(now):
            with contextlib.suppress(OSError):
                self.files.rm_file(f"{self.there}/{name}")
            del self._known[name]
