"""Decoded images of a set that does not fit into memory, in a file of rows; and how much fits."""

import contextlib
import os
import shutil
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import InputError
from indelible.base.files import disk_errors, replacing

_CRC = 4
_GIGABYTE = 1 << 30


def memory_limit() -> int:
    """Return how many bytes of images are held in memory before a set is streamed from disk.

    A quarter of the machine's memory, or ``$INDELIBLE_MEMORY_GB``.
    """
    wanted = os.environ.get("INDELIBLE_MEMORY_GB")
    if wanted:
        try:
            return int(float(wanted) * _GIGABYTE)
        except (ValueError, OverflowError) as error:
            raise InputError(f"INDELIBLE_MEMORY_GB must be a number of gigabytes, got {wanted!r}.") from error
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 2 * _GIGABYTE


class RowCache:
    """A file of decoded images that many processes fill and read at once, without locks and without trust.

    Every row is the pixels of one image followed by their CRC-32, which is never zero. The pixels are written first and
    the CRC after them, so a row that was never written, or only half (a killed process, a power cut), does not fit its
    CRC and is decoded again. Rows are written by ``pwrite`` and read through a memory map: a full disk is then an error
    that can be caught, not a signal that kills.

    The file ``path``, of ``count`` rows of ``size`` bytes, is created when missing; its name must change when the
    images do.
    """

    def __init__(self, path: Path, count: int, size: int) -> None:
        self.path, self.count, self.size = path, count, size
        whole = count * (size + _CRC)
        if not path.is_file() or path.stat().st_size != whole:
            with replacing(path) as temporary, disk_errors(path):
                os.truncate(temporary, whole)

    @staticmethod
    def fits(folder: Path, count: int, size: int) -> bool:
        """Tell whether the disk has room for such a file, and a gigabyte to spare."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free > count * (size + _CRC) + _GIGABYTE

    @cached_property
    def _table(self) -> npt.NDArray[np.uint8]:
        return np.asarray(np.memmap(self.path, np.uint8, "r", shape=(self.count, self.size + _CRC)))

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the file itself.
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    def read(self, row: int, into: npt.NDArray[np.uint8]) -> bool:
        """Copy a row into ``into`` (uint8, (size,)); False when it is not there, or torn."""
        stored = self._table[row]
        mark: bytes = stored[self.size :].tobytes()
        if not any(mark):
            return False
        into[:] = stored[: self.size]
        return _mark(into) == mark

    def write(self, row: int, pixels: npt.NDArray[np.uint8]) -> None:
        """Store a row; a disk that refuses is no error, the row is then decoded again."""
        start = row * (self.size + _CRC)
        with contextlib.suppress(OSError), self.path.open("r+b", buffering=0) as file:
            if os.pwrite(file.fileno(), pixels.data, start) == self.size:
                os.pwrite(file.fileno(), _mark(pixels), start + self.size)


def _mark(pixels: npt.NDArray[np.uint8]) -> bytes:
    return (zlib.crc32(pixels.data) or 1).to_bytes(_CRC, "little")
