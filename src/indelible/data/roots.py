"""Where data live on disk, and how much of it may live in memory."""

import os
from pathlib import Path

from indelible.base.errors import InputError

__all__ = ["data_root", "memory_limit"]

_GIGABYTE = 1 << 30


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of fetched sets: ``root``, else ``$INDELIBLE_DATA``, else ``~/.cache/indelible``."""
    return Path(root or os.environ.get("INDELIBLE_DATA") or Path.home() / ".cache" / "indelible").expanduser()


def memory_limit() -> int:
    """Return how many bytes of images are held in memory before a set is streamed from disk.

    A quarter of the machine's memory, or ``$INDELIBLE_MEMORY_GB``.
    """
    wanted = os.environ.get("INDELIBLE_MEMORY_GB")
    if wanted:
        try:
            return int(float(wanted) * _GIGABYTE)
        except (ValueError, OverflowError) as error:
            raise InputError(f"INDELIBLE_MEMORY_GB must be a number of gigabytes, but is {wanted!r}.") from error
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 2 * _GIGABYTE
