"""Images that do not fit into memory: read in batches by worker processes, decoded once, kept in a file of rows.

:class:`StreamData` has the surface of :class:`~indelible.data.images.ImageData` and yields the same batches. Images
come from a *reader*, anything with a length that returns image ``i`` as uint8 (C, H, W). Rows that were replaced
(watermark samples) are held in memory beside it.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.data.convert import class_names
from indelible.data.images import Batch, Data, ImageData, Shape, check_labels
from indelible.data.items import DatasetReader
from indelible.data.roots import memory_limit
from indelible.data.rows import RowCache

__all__ = ["Reader", "StreamData", "from_dataset"]

_GATHER = 256


class Reader(Protocol):
    """Decodes images one at a time."""

    def __len__(self) -> int:
        """Return how many images there are."""
        ...

    def __getitem__(self, index: int) -> Tensor:
        """Return image ``index``: uint8 (C, H, W)."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamData:
    """Images read from disk when they are needed.

    Attributes:
        reader: Decodes images.
        rows: int64 (N,): which image of the reader each row is.
        labels: int64 (N,).
        classes: Class names.
        shape: (C, H, W) of every image.
        name: What people call the set.
        cache: Where decoded images are kept, if anywhere.
        workers: Processes that decode; 0 decodes in this one.
        patch: int64 (N,): which of ``patches`` stands in for each row, or -1.
        patches: uint8 (P, C, H, W): replaced rows.
    """

    reader: Reader
    rows: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    shape: Shape
    name: str = "data"
    cache: RowCache | None = None
    workers: int = 0
    patch: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    patches: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))

    def __post_init__(self) -> None:
        count = len(self.rows)
        if self.labels.shape != (count,) or self.labels.dtype != torch.int64:
            raise InputError(
                f"labels of {self.name!r} must be int64 of shape ({count},), one for each image, but came as "
                f"{str(self.labels.dtype).removeprefix('torch.')} of shape {tuple(self.labels.shape)}."
            )
        check_labels(self.labels, len(self.classes), self.name)
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
        loader: DataLoader[Batch] = DataLoader(
            _Batches(self),
            batch_size=None,
            sampler=batches,
            # More processes than cores only get in each other's way, and torch warns of them.
            num_workers=min(self.workers, _cores(), len(batches)),
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


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not a Linux system
        return os.cpu_count() or 1


def from_dataset(
    dataset: Dataset[Any],
    classes: Sequence[str] | int | None = None,
    name: str = "data",
    *,
    limit: int | None = None,
    workers: int = 0,
    cache: str | Path | None = None,
) -> Data:
    """Turn a map-style torch data set of ``(image, label)`` into labelled images.

    Args:
        dataset: Items are pairs of an image (PIL, uint8 or float tensor (C, H, W), array) and a whole number.
        classes: Class names or their number; by default the highest label decides.
        name: What to call the set.
        limit: Bytes of images that may be held in memory; a larger set is streamed. See
            :func:`~indelible.data.roots.memory_limit` for the default.
        workers: Processes that decode a streamed set.
        cache: File that keeps the decoded images of a streamed set. Its name must change when the images do.
    """
    reader = DatasetReader(dataset, name)
    count, size = len(reader), int(np.prod(reader.shape))
    labels = torch.empty(count, dtype=torch.int64)
    streamed = count * size > (memory_limit() if limit is None else limit)
    images = torch.empty((0 if streamed else count, *reader.shape), dtype=torch.uint8)
    rows = RowCache(Path(cache), count, size) if streamed and cache is not None else None
    with Progress(f"reading {name}", count) as bar:
        for index in range(count):
            image, labels[index] = reader.item(index)
            if rows is not None:
                rows.write(index, image.contiguous().view(-1).numpy())
            elif not streamed:
                images[index] = image
            bar.advance()
    names = class_names(classes, labels)
    if not streamed:
        return ImageData(images, labels, names, name)
    return StreamData(
        reader=reader,
        rows=torch.arange(count),
        labels=labels,
        classes=names,
        shape=reader.shape,
        name=name,
        cache=rows,
        workers=workers,
    )
