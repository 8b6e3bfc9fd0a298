"""Augmentation of whole batches on the device that trains: random crop after padding, random flip.

As in the paper (Section 4.1 and the usual CIFAR recipe): pad by 4 pixels of zeros on every side, crop back to the
original size at a random place, flip left-right with probability one half. For larger images the padding grows in
proportion (an eighth of the height).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import UnknownNameError
from indelible.data.share import WHOLE, Share

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Normalization",
    "augment",
    "crop",
    "denormalise",
    "flip",
    "normalise",
    "to_float",
]

Augmentation = Literal["crop-flip", "crop", "none"]
AUGMENTATIONS: tuple[Augmentation, ...] = ("crop-flip", "crop", "none")
Normalization = tuple[tuple[float, ...], tuple[float, ...]]


def to_float(images: Tensor) -> Tensor:
    """Map uint8 (N, C, H, W) to float32 in [0, 1]."""
    return images.to(torch.float32).div_(255.0)


def normalise(images: Tensor, by: Normalization | None) -> Tensor:
    """Subtract the mean and divide by the standard deviation of each channel; the paper does neither (None)."""
    if by is None:
        return images
    mean, std = (torch.tensor(values, device=images.device, dtype=images.dtype)[:, None, None] for values in by)
    return (images - mean) / std


def denormalise(images: Tensor, by: Normalization | None) -> Tensor:
    """Undo :func:`normalise`, up to rounding."""
    if by is None:
        return images
    mean, std = (torch.tensor(values, device=images.device, dtype=images.dtype)[:, None, None] for values in by)
    return images * std + mean


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Pad by zeros and crop each image at its own place.

    Args:
        images: (N, C, H, W) of any type.
        top: int64 (N,), rows of the crops' upper edges in the padded image, 0 .. 2 * padding.
        left: int64 (N,), columns of the crops' left edges.
        padding: Pixels of zeros on every side.

    Returns:
        (N, C, H, W).
    """
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    each = torch.arange(count, device=images.device)[:, None, None]
    # Advanced indices around a slice put the indexed axes first: (N, H, W, C).
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Flip the images left-right where ``which`` (bool, (N,)) is true."""
    return torch.where(which[:, None, None, None], images.flip(-1), images)


def augment(
    images: Tensor, kind: Augmentation, random: torch.Generator, share: Share = WHOLE, total: int | None = None
) -> Tensor:
    """Augment a batch.

    Args:
        images: (N, C, H, W) of any type.
        kind: What to do.
        random: Lives on the CPU, whatever the device.
        share: Which part of a batch of several processes ``images`` are. Numbers are drawn for the whole batch, so that
            an image is treated alike whichever process handles it.
        total: Rows of the whole batch; by default those of ``images``.
    """
    if kind not in AUGMENTATIONS:
        raise UnknownNameError("augmentation", kind, AUGMENTATIONS)
    if kind == "none":
        return images
    count, height = len(images) if total is None else total, images.shape[-2]
    padding = max(1, height // 8)
    places = torch.randint(0, 2 * padding + 1, (2, count), generator=random)
    top, left = (share.of(row).to(images.device, non_blocking=True) for row in places)
    images = crop(images, top, left, padding)
    if kind == "crop-flip":
        which = share.of(torch.rand(count, generator=random, dtype=torch.float32) < 0.5).to(
            images.device, non_blocking=True
        )
        images = flip(images, which)
    return images
