"""Locks that survive a killed owner: two processes never do the same cell, and no dead one keeps a cell to itself.

``FileLock``: ``flock`` on a file. The kernel releases it when its owner dies, however that happens. For stores on a
local file system, and for the folder of a single run (:func:`working_on`).

``Lease``: for stores that several machines share, where no kernel knows of the other's death. An owner creates
``<name>.<n>.json`` - creation that fails when the file is there is the one thing that file systems and object stores do
atomically - and rewrites it with a growing beat. A watcher that sees the same beat for ``patience`` seconds *of its own
clock* takes the owner for dead and creates number n + 1; of several watchers one succeeds. Clocks of different machines
are never compared. An owner that finds a higher number than its own, or that could not beat for most of the patience,
has lost the lease and must stop.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from indelible.base.errors import InputError, StorageError

__all__ = ["FileLock", "Lease", "Leases", "Lock", "LostLeaseError", "Sign", "create", "working_on"]

Sign = tuple[int, str, int]
"""Number, owner and beat of a lease: what changes while its owner lives."""
PATIENCE = 60.0
RUN_LOCK = ".lock"
_BEATS = 6


class LostLeaseError(StorageError):
    """Another process took a lease over, because this one did not show for too long."""


class Lock(Protocol):
    """A held lock."""

    def check(self) -> None:
        """Raise :class:`LostLeaseError` when the lock is no longer held."""

    def release(self) -> None:
        """Give it back."""


class FileLock:
    """A lock on a file of a local file system; make one with :meth:`acquire`."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle: int | None = handle
        self._path = path

    @classmethod
    def acquire(cls, path: Path) -> "FileLock | None":
        """Take the lock, or return None when somebody else has it."""
        import fcntl

        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by other programs
            except FileNotFoundError:
                continue  # the folder was removed a moment ago
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                return None
            if _names(path, handle):
                return cls(handle, path)
            os.close(handle)  # the last owner has removed this file: a lock on it would be nobody's

    @classmethod
    def held(cls, path: Path) -> bool:
        """Tell whether somebody has the lock."""
        if not path.exists():
            return False
        found = cls.acquire(path)
        if found is not None:
            found.release()
        return found is None

    def check(self) -> None:
        """A lock of the kernel's cannot be lost."""

    def release(self, *, remove: bool = False) -> None:
        """Give it back.

        Args:
            remove: Also remove the file, while the lock is held: whoever has opened it before finds that out.
        """
        if self._handle is not None:
            if remove:
                with contextlib.suppress(OSError):
                    self._path.unlink()
            os.close(self._handle)
            self._handle = None


def _names(path: Path, handle: int) -> bool:
    """Tell whether a path still names the file that was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def working_on(folder: Path) -> Iterator[None]:
    """Hold a run's folder: of two commands that write into one folder, the second is refused.

    The lock is a file that is there while the block runs. That of a process that was killed holds nobody up.

    Raises:
        InputError: Another process works on the folder.
        StorageError: The folder cannot be written to.
    """
    fresh = not folder.exists()
    try:
        lock = FileLock.acquire(folder / RUN_LOCK)
    except ImportError:  # a system without flock
        yield
        return
    except OSError as error:
        raise StorageError(
            f"cannot write into {folder}: {error.strerror}. Choose another folder with --out."
        ) from error
    if lock is None:
        raise InputError(
            f"another command works on {folder} at this moment. Wait for it, or choose another folder with --out."
        )
    try:
        yield
    finally:
        lock.release(remove=True)
        if fresh:  # a run that was refused leaves nothing behind
            with contextlib.suppress(OSError):
                folder.rmdir()


def create(files: Any, path: str, content: bytes) -> None:
    """Create a file on an fsspec file system; of several processes that try, one succeeds.

    Raises:
        FileExistsError: It is there.
    """
    if files.protocol == "file" or "file" in files.protocol:
        # fsspec's own way for local files first asks and then writes, which lets two through.
        with Path(path).open("xb") as handle:
            handle.write(content)
    else:
        files.pipe_file(path, content, mode="create")


class Leases:
    """The leases of one folder, as one watcher sees them.

    Args:
        files: An fsspec file system.
        folder: The folder on it.
        patience: Seconds without a beat after which an owner is taken for dead.
        clock: Monotonic seconds.
    """

    def __init__(
        self, files: Any, folder: str, *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.files, self.folder, self.patience, self.clock = files, folder, patience, clock
        self._seen: dict[str, tuple[Sign, float]] = {}
        files.makedirs(folder, exist_ok=True)

    def path(self, name: str, number: int) -> str:
        """Return the file of a lease."""
        return f"{self.folder}/{name}.{number}.json"

    def latest(self, name: str) -> tuple[int, dict[str, Any] | None]:
        """Return number and content of the newest lease of ``name``: (0, None) when there is none."""
        self.files.invalidate_cache()
        number = 0
        for path in self.files.glob(f"{self.folder}/{name}.*.json"):
            with contextlib.suppress(ValueError):
                number = max(number, int(str(path).rsplit(".", 2)[1]))
        if number == 0:
            return 0, None
        try:
            content: dict[str, Any] = json.loads(self.files.cat_file(self.path(name, number)))
        except (OSError, ValueError):
            content = {}  # just being written
        return number, content

    def held(self, name: str) -> bool:
        """Tell whether somebody has a live lease; an owner is dead once its beat stood still for the patience."""
        sign = self._sign(name)
        return sign is not None and not self._still(name, sign)

    def dead(self, name: str) -> Sign | None:
        """Return the last sign of life of an owner that is dead by now; None when there is no dead owner."""
        sign = self._sign(name)
        return sign if sign is not None and self._still(name, sign) else None

    def acquire(self, name: str, dead: Sequence[Any] | None = None) -> "Lease | None":
        """Take a lease, or return None when somebody else has it.

        Args:
            name: What is leased.
            dead: The last sign of an owner that another watcher of this lease has found dead.
        """
        sign = self._sign(name)
        if sign is not None and not self._still(name, sign) and (dead is None or tuple(dead) != sign):
            return None
        lease = Lease(self, name, self.latest(name)[0] + 1)
        return lease if lease.create() else None

    def _sign(self, name: str) -> Sign | None:
        """Return the last sign of life of a lease's owner; None when nobody has it."""
        number, content = self.latest(name)
        if content is None or content.get("released"):
            return None
        return number, str(content.get("owner", "")), int(content.get("beat", -1))

    def _still(self, name: str, sign: Sign) -> bool:
        """Tell whether a sign has stood still for the patience, as far as this watcher has seen."""
        now = self.clock()
        known = self._seen.get(name)
        if known is None or known[0] != sign:
            self._seen[name] = (sign, now)
            return False
        return now - known[1] >= self.patience


class Lease:
    """A held lease, kept alive by a thread; make one with :meth:`Leases.acquire`."""

    def __init__(self, leases: Leases, name: str, number: int) -> None:
        self.leases, self.name, self.number = leases, name, number
        self.owner = secrets.token_hex(8)
        self.beat, self.lost = 0, False
        self._last = leases.clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def create(self) -> bool:
        """Create the lease's file; False when another process was quicker."""
        try:
            create(self.leases.files, self._path, self._content())
        except FileExistsError:
            return False
        self._last = self.leases.clock()
        self._thread.start()
        return True

    def renew(self) -> None:
        """Beat once."""
        if self.leases.latest(self.name)[0] > self.number:
            self.lost = True
            return
        self.beat += 1
        try:
            self.leases.files.pipe_file(self._path, self._content())
            self._last = self.leases.clock()
        except OSError:
            pass  # the store is away for a moment; `check` sees when that lasts too long

    def check(self) -> None:
        """Raise when the lease was taken over, or may be at any moment."""
        late = self.leases.clock() - self._last > self.leases.patience * (_BEATS - 1) / _BEATS
        if self.lost or late:
            raise LostLeaseError(f"the lease of {self.name} was lost: this process did not show for too long.")

    def release(self) -> None:
        """Give it back."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self.lost:
            with contextlib.suppress(OSError):
                self.leases.files.pipe_file(self._path, self._content(released=True))

    @property
    def _path(self) -> str:
        return self.leases.path(self.name, self.number)

    def _content(self, **more: Any) -> bytes:
        return json.dumps({"owner": self.owner, "beat": self.beat, **more}).encode()

    def _keep(self) -> None:
        while not self._stop.wait(self.leases.patience / _BEATS):
            self.renew()
            if self.lost:
                return
