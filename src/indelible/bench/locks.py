"""Lock cells and run folders: two processes never work on the same one, and a dead process locks nothing.

The locks are those of the package filelock: ``flock`` on a file, which the kernel releases when its owner dies, however
that happens. On a folder that several machines share they hold as far as its file system passes locks on.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from indelible.base.errors import InputError, StorageError

RUN_LOCK = ".lock"


def try_lock(path: Path) -> BaseFileLock | None:
    """Take the lock of a file, or return None when another owner has it; ``release()`` gives it back."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(blocking=False)
        except FileNotFoundError:
            continue  # the folder was removed a moment ago
        except Timeout:
            if path.exists():
                return None
            continue  # its last owner has removed the file that was opened: a lock on it would be nobody's
        return lock


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock of a file."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is not None:
        lock.release()
    return lock is None


@contextlib.contextmanager
def working_on(folder: Path) -> Iterator[None]:
    """Hold a run's folder: of two commands that write into one folder, the second is refused.

    The lock is a file that is there while the block runs. That of a process that was killed holds nobody up.
    """
    fresh = not folder.exists()
    try:
        lock = try_lock(folder / RUN_LOCK)
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
        # Removed while it is held: whoever has opened it before finds that out.
        with contextlib.suppress(OSError):
            (folder / RUN_LOCK).unlink()
        lock.release()
        if fresh:  # a run that was refused leaves nothing behind
            with contextlib.suppress(OSError):
                folder.rmdir()
