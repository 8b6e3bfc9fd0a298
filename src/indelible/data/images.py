"""Labelled images: the one shape of data that everything else takes.

Images stay ``uint8`` of shape (N, C, H, W), on the device that trains; conversion to float, augmentation and
normalisation run there on whole batches. Two classes have the same surface: :class:`ImageData` holds all images
in memory; :class:`~indelible.data.stream.StreamData` reads sets that are larger than memory.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from indelible.base.errors import InputError

Shape = tuple[int, int, int]
Batch = tuple[Tensor, Tensor]


@runtime_checkable
class Data(Protocol):
    """Labelled images with known class names."""

    @property
    def name(self) -> str:
        """What people call the set."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """One name for each class; the label ``k`` is class ``classes[k]``."""
        ...

    @property
    def labels(self) -> Tensor:
        """int64 (N,), in memory even when the images are not."""
        ...

    @property
    def shape(self) -> Shape:
        """(C, H, W) of every image."""
        ...

    def __len__(self) -> int: ...

    def subset(self, indices: Tensor) -> "Data":
        """Return the images at ``indices`` (int64, shape (n,)), in that order."""
        ...

    def replaced(self, indices: Tensor, images: Tensor, labels: Tensor) -> "Data":
        """Return the set with the rows at ``indices`` replaced; the original is unchanged."""
        ...

    def gather(self, indices: Tensor) -> "ImageData":
        """Read the images at ``indices`` into memory."""
        ...

    def iterate(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        """Yield (uint8 images, int64 labels) on ``device``, ``batch_size`` rows at a time, in ``order``."""
        ...

    def digest(self) -> str:
        """Return a SHA-256 that changes when images, labels or classes change."""
        ...


def check_labels(labels: Tensor, count: int, classes: int, name: str) -> None:
    """Refuse labels that are not one whole number in ``0 .. classes - 1`` for each of ``count`` images."""
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise InputError(
            f"labels of {name!r} must be int64 of shape ({count},), one for each image, got "
            f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}."
        )
    if labels.numel() == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise InputError(
            f"labels of {name!r} must lie in 0..{classes - 1} ({classes} classes), got {wrong}. "
            "Check the class list, or number the labels from 0."
        )


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images in memory."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
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
        return f"ImageData({self.name!r}, {len(self)} images of {self.shape}, {len(self.classes)} classes)"

    @property
    def shape(self) -> Shape:
        """(C, H, W) of every image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> Self:
        """Return the set with its images and labels on ``device``."""
        return type(self)(self.images.to(device), self.labels.to(device), self.classes, self.name)

    def subset(self, indices: Tensor) -> "ImageData":
        """Return the images at ``indices``, in that order."""
        at = indices.to(self.images.device)
        return ImageData(self.images[at], self.labels[at], self.classes, self.name)

    gather = subset

    def replaced(self, indices: Tensor, images: Tensor, labels: Tensor) -> "ImageData":
        """Return a copy with the rows at ``indices`` replaced."""
        at = indices.to(self.images.device)
        new_images, new_labels = self.images.clone(), self.labels.clone()
        new_images[at] = images.to(new_images.device)
        new_labels[at] = labels.to(new_labels.device)
        return ImageData(new_images, new_labels, self.classes, self.name)

    def iterate(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        """Yield batches by indexing; nothing is copied when the set lies on ``device`` already."""
        at = order.to(self.images.device)
        for start in range(0, len(at), batch_size):  # torch.split would yield one empty batch of an empty order
            rows = at[start : start + batch_size]
            # Whole images: index_select copies them in one piece, where indexing goes byte by byte.
            yield self.images.index_select(0, rows).to(device), self.labels[rows].to(device)

    def digest(self) -> str:
        """Return a SHA-256 over class names, shape, labels and pixels."""
        found = hashlib.sha256(repr((self.classes, tuple(self.images.shape))).encode())
        found.update(self.labels.cpu().contiguous().numpy().data)
        found.update(self.images.cpu().contiguous().numpy().data)
        return found.hexdigest()
