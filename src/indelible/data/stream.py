"""Images that do not fit into memory: read in batches by worker processes, decoded once, kept in a file of rows.

:class:`StreamData` has the surface of :class:`~indelible.data.images.ImageData` and yields the same batches. Images
come from a *reader*, anything with a length that returns image ``i`` as uint8 (C, H, W). Rows that were replaced
(watermark samples) are held in memory beside it.
"""

import hashlib
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from indelible.base.errors import InputError
from indelible.base.files import disk_errors, replacing
from indelible.base.progress import Progress
from indelible.data.images import Batch, ImageData, Shape, check_labels

_GATHER = 256
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
        return shutil.disk_usage(folder).free > count * (size + _CRC) + _GIGABYTE

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


class Reader(Protocol):
    """Decodes images one at a time, to uint8 (C, H, W)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamData:
    """Images read from disk when they are needed."""

    reader: Reader
    rows: Tensor  # int64 (N,): which image of the reader each row is
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
    shape: Shape
    name: str = "data"
    cache: RowCache | None = None
    workers: int = 0  # processes that decode; 0 decodes in this one
    patch: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # which of patches, or -1: (N,)
    patches: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))  # replaced rows, (P, C, H, W)

    def __post_init__(self) -> None:
        count = len(self.rows)
        check_labels(self.labels, count, len(self.classes), self.name)
        if len(self.patch) != count:
            object.__setattr__(self, "patch", torch.full((count,), -1, dtype=torch.int64))
        if self.patches.ndim != 4:
            object.__setattr__(self, "patches", torch.empty((0, *self.shape), dtype=torch.uint8))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"StreamData({self.name!r}, {len(self)} images of {self.shape}, {len(self.classes)} classes)"

    def subset(self, indices: Tensor) -> "StreamData":
        """Return the images at ``indices``, in that order."""
        at = indices.cpu()
        return replace(self, rows=self.rows[at], labels=self.labels[at], patch=self.patch[at])

    def replaced(self, indices: Tensor, images: Tensor, labels: Tensor) -> "StreamData":
        """Return the set with the rows at ``indices`` replaced; the new images are held in memory."""
        at = indices.cpu()
        new_labels, patch = self.labels.clone(), self.patch.clone()
        new_labels[at] = labels.cpu()
        patch[at] = torch.arange(len(self.patches), len(self.patches) + len(at))
        return replace(self, labels=new_labels, patch=patch, patches=torch.cat([self.patches, images.cpu()]))

    def cached(self, cache: RowCache | None) -> "StreamData":
        """Return the set with another place for decoded images."""
        return replace(self, cache=cache)

    def gather(self, indices: Tensor, bar: Progress | None = None) -> ImageData:
        """Read the images at ``indices`` into memory, counting them on ``bar``."""
        at = indices.cpu()
        images = torch.empty((len(at), *self.shape), dtype=torch.uint8)
        start = 0
        for part, _ in self.iterate(at, _GATHER, torch.device("cpu")):
            images[start : start + len(part)] = part
            start += len(part)
            if bar is not None:
                bar.advance(len(part))
        return ImageData(images, self.labels[at], self.classes, self.name)

    def iterate(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        """Yield batches in ``order``; worker processes read ahead."""
        at = order.cpu()
        batches = [at[start : start + batch_size] for start in range(0, len(at), batch_size)]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        loader: DataLoader[Batch] = DataLoader(
            _Batches(self),
            batch_size=None,
            sampler=batches,
            # More processes than cores only get in each other's way, and torch warns of them.
            num_workers=min(self.workers, cores, len(batches)),
            pin_memory=device.type == "cuda",
        )
        try:
            for images, labels in loader:
                yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        except InputError as error:
            # A worker's error carries its traceback as text; its last line is the message.
            raise InputError(str(error).strip().rpartition("InputError: ")[2]) from error

    def read(self, indices: Tensor) -> Tensor:
        """Return the images at ``indices`` as uint8 (n, C, H, W), decoded in this process."""
        images = torch.empty((len(indices), *self.shape), dtype=torch.uint8)
        flat = images.view(len(indices), -1).numpy()
        patch = self.patch[indices]
        for place, (row, stand_in) in enumerate(zip(self.rows[indices].tolist(), patch.tolist(), strict=True)):
            if stand_in >= 0 or (self.cache is not None and self.cache.read(row, flat[place])):
                continue
            images[place] = self.reader[row]
            if self.cache is not None:
                self.cache.write(row, flat[place])
        images[patch >= 0] = self.patches[patch[patch >= 0]]
        return images

    def digest(self) -> str:
        """Return a SHA-256 over class names, shape, labels and pixels; the first call reads the whole set."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        found = hashlib.sha256(repr((self.classes, (len(self), *self.shape))).encode())
        found.update(self.labels.numpy().data)
        for images, _ in self.iterate(torch.arange(len(self)), _GATHER, torch.device("cpu")):
            found.update(images.numpy().data)
        return found.hexdigest()


class _Batches(Dataset[Batch]):
    """Looks like a data set whose items are whole batches, so that a worker decodes a batch at a time."""

    def __init__(self, data: StreamData) -> None:
        self.data = data

    def __getitem__(self, indices: Tensor) -> Batch:
        return self.data.read(indices), self.data.labels[indices]
