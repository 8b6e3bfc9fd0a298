"""A file of decoded images that many processes fill and read at once, without locks and without trust.

Every row is the pixels of one image followed by their CRC-32, which is never zero. The pixels are written first and the
CRC after them, so a row that was never written, or only half (a killed process, a power cut), does not fit its CRC and
is decoded again. Rows are written by ``pwrite`` and read through a memory map: a full disk is then an error that can be
caught, not a signal that kills.
"""

import mmap
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.files import replacing
from indelible.data.disk import disk_errors

__all__ = ["RowCache"]

_CRC = 4
_SPARE = 1 << 30


class RowCache:
    """Rows of ``size`` bytes in the file ``path``.

    Args:
        path: The file; created when missing. Its name must change when the images do.
        count: Rows.
        size: Bytes of a row.
    """

    def __init__(self, path: Path, count: int, size: int) -> None:
        self.path, self.count, self.size = path, count, size
        self._stride = size + _CRC
        self._open: tuple[int, npt.NDArray[np.uint8]] | None = None
        whole = count * self._stride
        if not path.is_file() or path.stat().st_size != whole:
            with replacing(path) as temporary, disk_errors(path):
                os.truncate(temporary, whole)

    @staticmethod
    def fits(folder: Path, count: int, size: int) -> bool:
        """Tell whether the disk has room for such a file, and a gigabyte to spare."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free > count * (size + _CRC) + _SPARE

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def __del__(self) -> None:
        opened = getattr(self, "_open", None)  # missing when the file could not be created
        if opened is not None:
            os.close(opened[0])

    def _table(self) -> tuple[int, npt.NDArray[np.uint8]]:
        if self._open is None:
            handle = os.open(self.path, os.O_RDWR)
            mapped = mmap.mmap(handle, self.count * self._stride, access=mmap.ACCESS_READ)
            self._open = handle, np.frombuffer(mapped, np.uint8).reshape(self.count, self._stride)
        return self._open

    def read(self, row: int, into: npt.NDArray[np.uint8]) -> bool:
        """Copy a row into ``into`` (uint8, (size,)); False when it is not there, or torn."""
        stored = self._table()[1][row]
        mark = int.from_bytes(stored[self.size :].tobytes(), "little")
        if mark == 0:
            return False
        into[:] = stored[: self.size]
        return _mark(into) == mark

    def write(self, row: int, pixels: npt.NDArray[np.uint8]) -> None:
        """Store a row; a disk that refuses is no error, the row is then decoded again."""
        handle = self._table()[0]
        start = row * self._stride
        try:
            if os.pwrite(handle, pixels.data, start) == self.size:
                os.pwrite(handle, _mark(pixels).to_bytes(_CRC, "little"), start + self.size)
        except OSError:
            return


def _mark(pixels: npt.NDArray[np.uint8]) -> int:
    return zlib.crc32(pixels.data) or 1
