"""Labelled images: the one shape of data that everything else takes.

Images stay ``uint8`` of shape (N, C, H, W), on the device that trains; conversion to float, augmentation and
normalisation run there on whole batches. Two classes have the same surface and yield the same batches:
:class:`ImageData` holds all images in memory; :class:`StreamData` reads sets that are larger than memory, in batches,
by worker processes.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from indelible.base.errors import InputError
from indelible.base.progress import Progress

Shape = tuple[int, int, int]
Batch = tuple[Tensor, Tensor]
_GATHER = 256
_GIGABYTE = 1 << 30
_CPU = torch.device("cpu")


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


def check_labels(labels: Tensor, count: int, classes: int, name: str) -> None:
    """Refuse labels that are not one whole number in ``0 .. classes - 1`` for each of ``count`` images."""
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise InputError(
            f"labels of {name!r} must be int64 of shape ({count},), one for each image, got "
            f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}."
        )
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.numel():
        raise InputError(
            f"labels of {name!r} must lie in 0..{classes - 1} ({classes} classes), got {int(wrong[0])}. "
            "Check the class list, or number the labels from 0."
        )


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images in memory."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]  # the label k is class classes[k]
    name: str = "data"

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise InputError(
                f"images of {self.name!r} must be uint8 of shape (N, C, H, W), got "
                f"{str(self.images.dtype).removeprefix('torch.')} of shape {tuple(self.images.shape)}. "
                "Convert with indelible.as_data, which also takes floats in [0, 1]."
            )
        check_labels(self.labels, len(self.images), len(self.classes), self.name)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return _described(self)

    @property
    def shape(self) -> Shape:
        """(C, H, W) of every image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> Self:
        """Return the set with its images and labels on ``device``."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Tensor) -> Self:
        """Return the images at ``indices`` (int64, shape (n,)), in that order."""
        at = indices.to(self.images.device)
        return replace(self, images=self.images[at], labels=self.labels[at])

    gather = subset

    def replaced(self, indices: Tensor, images: Tensor, labels: Tensor) -> Self:
        """Return a copy with the rows at ``indices`` replaced."""
        at = indices.to(self.images.device)
        new_images = self.images.index_copy(0, at, images.to(self.images.device))
        return replace(self, images=new_images, labels=self.labels.index_copy(0, at, labels.to(self.labels.device)))

    def iterate(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        """Yield (uint8 images, int64 labels) on ``device``, ``batch_size`` rows at a time, in ``order``.

        Nothing is copied when the set lies on ``device`` already.
        """
        at = order.to(self.images.device)
        for start in range(0, len(at), batch_size):  # torch.split would yield one empty batch of an empty order
            rows = at[start : start + batch_size]
            # Whole images: index_select copies them in one piece, where indexing goes byte by byte.
            yield self.images.index_select(0, rows).to(device), self.labels[rows].to(device)

    def digest(self) -> str:
        """Return a SHA-256 over class names, shape, labels and pixels."""
        return _digest(self)


class ImageReader(Protocol):
    """Decodes images one at a time, to uint8 of ``shape``."""

    shape: Shape

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamData(Dataset[Batch]):
    """Images read from disk when they are needed; rows that were replaced (watermark samples) are held in memory."""

    reader: ImageReader
    rows: Tensor  # int64 (N,): which image of the reader each row is; ~p for one that patches[p] has replaced
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
    name: str = "data"
    workers: int = 0  # processes that decode; 0 decodes in this one
    patches: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))  # (P, C, H, W)

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.rows), len(self.classes), self.name)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return _described(self)

    @property
    def shape(self) -> Shape:
        """(C, H, W) of every image."""
        return self.reader.shape

    def subset(self, indices: Tensor) -> Self:
        """Return the images at ``indices``, in that order."""
        at = indices.cpu()
        return replace(self, rows=self.rows[at], labels=self.labels[at])

    def replaced(self, indices: Tensor, images: Tensor, labels: Tensor) -> Self:
        """Return the set with the rows at ``indices`` replaced."""
        at = indices.cpu()
        new = ~torch.arange(len(self.patches), len(self.patches) + len(at))
        return replace(
            self,
            rows=self.rows.index_copy(0, at, new),
            labels=self.labels.index_copy(0, at, labels.cpu()),
            patches=torch.cat([self.patches, images.cpu()]),
        )

    def gather(self, indices: Tensor, bar: Progress | None = None) -> ImageData:
        """Read the images at ``indices`` into memory, counting them on ``bar``."""
        at = indices.cpu()
        images = torch.empty((len(at), *self.shape), dtype=torch.uint8)
        start = 0
        for part, _ in self.iterate(at, _GATHER, _CPU):
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
            self,
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

    def __getitem__(self, indices: Tensor) -> Batch:
        """Return the batch at ``indices``, decoded in this process: a loader's worker does a batch at a time."""
        rows = self.rows[indices].tolist()
        images = torch.stack([self.reader[row] if row >= 0 else self.patches[~row] for row in rows])
        return images, self.labels[indices]

    def digest(self) -> str:
        """Return what the same images in memory would; the first call reads the whole set."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return _digest(self)


Data = ImageData | StreamData


def _described(data: Data) -> str:
    return f"{type(data).__name__}({data.name!r}, {len(data)} images of {data.shape}, {len(data.classes)} classes)"


def _digest(data: Data) -> str:
    found = hashlib.sha256(repr((data.classes, (len(data), *data.shape))).encode())
    found.update(data.labels.cpu().contiguous().numpy().data)
    for images, _ in data.iterate(torch.arange(len(data)), _GATHER, _CPU):
        found.update(images.numpy().data)
    return found.hexdigest()
