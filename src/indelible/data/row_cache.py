"""Decoded images of a set that does not fit into memory, in a file of rows; and how much fits."""

import contextlib
import math
import os
import shutil
import zlib
from pathlib import Path

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import disk_errors, replacing
from indelible.data.images import Reader

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
    """A reader that keeps what another one decodes; many processes fill and read its file at once, without locks.

    Every row of the file is the pixels of one image followed by their CRC-32, which is never zero. A row that was never
    written, or only half (a killed process, a power cut), does not fit its CRC and is decoded again.

    The file ``path`` is created when it is missing; its name must change when the images do.
    """

    def __init__(self, reader: Reader, path: Path) -> None:
        self.reader, self.path, self.shape = reader, path, reader.shape
        whole = self.size(reader)
        if not path.is_file() or path.stat().st_size != whole:
            with replacing(path) as temporary, disk_errors(path):
                os.truncate(temporary, whole)

    @staticmethod
    def size(reader: Reader) -> int:
        """Return how many bytes the file of a reader's images has."""
        return len(reader) * (math.prod(reader.shape) + _CRC)

    @classmethod
    def fits(cls, reader: Reader, folder: Path) -> bool:
        """Tell whether the disk has room for such a file, and a gigabyte to spare."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free > cls.size(reader) + _GIGABYTE

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Tensor:
        size = math.prod(self.shape)
        start = index * (size + _CRC)
        with self.path.open("rb", buffering=0) as file:
            row = os.pread(file.fileno(), size + _CRC, start)
        if _mark(row[:size]) == row[size:]:
            return torch.frombuffer(bytearray(row), dtype=torch.uint8, count=size).view(self.shape)
        image = self.reader[index]
        pixels = image.contiguous().numpy().tobytes()
        # A disk that refuses is no error: the row is then decoded again.
        with contextlib.suppress(OSError), self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), pixels + _mark(pixels), start)
        return image


def _mark(pixels: bytes) -> bytes:
    return (zlib.crc32(pixels) or 1).to_bytes(_CRC, "little")
