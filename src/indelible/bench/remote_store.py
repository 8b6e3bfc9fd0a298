"""A store on anything that fsspec reaches: object storage, or the disks of another machine.

Training needs a folder, so a cell is done in a local scratch folder: a store in a folder, whose locks keep the workers
of one machine apart. A run folder is copied to the URL when its cell ends, well or not, and fetched by whoever needs
it; records and failures are written there at once. Several machines work on one URL as workers of one driver (Ray): a
cell whose machine is lost begins again elsewhere, while on a shared folder it goes on from its last checkpoint.

fsspec comes with torch; a protocol may need its own package (``s3fs`` for ``s3://``).
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.store import FAILURES, RECORDS, RUNS, Store


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


class RemoteStore(Store):
    """A store behind a URL.

    Args:
        place: The URL, such as ``s3://bucket/bench``.
        scratch: Local folder to work in; by default one in the system's temporary folder, the same for every process
            of this machine, so that a model is fetched once.
    """

    def __init__(self, place: str, *, scratch: Path | None = None) -> None:
        named = hashlib.sha256(place.encode()).hexdigest()[:16]
        super().__init__(scratch or Path(tempfile.gettempdir()) / f"indelible-bench-{named}")
        self._place = place
        self.files, self.url = file_system(place)

    @property
    def place(self) -> str:
        """Where it is, as it can be opened again."""
        return self._place

    def finished(self) -> set[str]:
        """Return the digests of all finished cells."""
        self.files.invalidate_cache()
        return {Path(str(path)).stem for path in self.files.glob(f"{self.url}/{RECORDS}/*.json")}

    @contextmanager
    def working(self, digest: str) -> Iterator[Path]:
        """Yield a local folder with what is known of a cell; it is copied to the store at the end, well or not."""
        folder = self.root / RUNS / digest
        if not folder.exists():
            self._fetch(digest, folder)
        try:
            yield folder
        finally:
            self._send(digest, folder)

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        """Yield a local copy of the run folder of a finished cell."""
        folder = self.root / RUNS / digest
        if not (folder / "run.json").exists():
            self._fetch(digest, folder)
        yield folder

    def last_row(self, digest: str) -> Mapping[str, Any] | None:
        """Return the last row of a run's history, as far as this machine or the store knows it."""
        known = super().last_row(digest)
        if known is not None:
            return known
        try:
            lines = self.files.cat_file(f"{self.url}/{RUNS}/{digest}/history.jsonl").splitlines()
            row: Mapping[str, Any] | None = json.loads(lines[-1]) if lines else None
        except (OSError, ValueError):
            return None
        return row

    def _fetch(self, digest: str, folder: Path) -> None:
        """Bring a run folder here; it appears whole, so that another worker of this machine never sees half of it."""
        there = f"{self.url}/{RUNS}/{digest}"
        self.files.invalidate_cache()
        folder.parent.mkdir(parents=True, exist_ok=True)
        arriving = Path(tempfile.mkdtemp(prefix=f".{digest[:16]}", dir=folder.parent))
        if self.files.exists(there):
            self.files.get(f"{there}/", f"{arriving}/", recursive=True)
        shutil.rmtree(folder, ignore_errors=True)  # half a run that another machine has finished since
        with contextlib.suppress(OSError):  # another worker was quicker
            arriving.replace(folder)
        shutil.rmtree(arriving, ignore_errors=True)

    def _send(self, digest: str, folder: Path) -> None:
        there = f"{self.url}/{RUNS}/{digest}"
        with contextlib.suppress(FileNotFoundError):
            self.files.rm(there, recursive=True)
        if folder.exists():
            self.files.put(f"{folder}/", f"{there}/", recursive=True)

    def _read(self, name: str) -> Mapping[str, Any] | None:
        self.files.invalidate_cache()
        try:
            found = json.loads(self.files.cat_file(f"{self.url}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedFileError(f"{self._place}/{name} is not JSON. Delete it to do its cell again.") from error
        return found if isinstance(found, Mapping) else None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        path = f"{self.url}/{name}"
        self.files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self.files.pipe_file(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def _forget_failure(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            self.files.rm_file(f"{self.url}/{FAILURES}/{digest}.json")
