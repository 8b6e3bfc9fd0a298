"""Augmentation of whole batches on the device that trains: random crop after padding, random flip.

Every process augments its :class:`Share` of a batch as one process would have.

As in the paper (Section 4.1 and the usual CIFAR recipe): pad by 4 pixels of zeros on every side, crop back to the
original size at a random place, flip left-right with probability one half. For larger images the padding grows in
proportion (an eighth of the height).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import UnknownNameError

Augmentation = Literal["crop-flip", "crop", "none"]
AUGMENTATIONS: tuple[Augmentation, ...] = ("crop-flip", "crop", "none")
Normalization = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Share:
    """Which rows of a batch belong to process ``rank`` of ``world`` processes: every ``world``-th, from ``rank`` on.

    Rows are dealt out like cards. So the first rows of the whole batch are the first rows of every process' part, and a
    method that takes "the first 64 rows" takes the same rows whatever the number of processes.
    """

    rank: int = 0
    world: int = 1

    def of(self, rows: Tensor) -> Tensor:
        """Return this process' part of ``rows`` (first axis)."""
        return rows[self.rank :: self.world] if self.world > 1 else rows

    def count(self, total: int) -> int:
        """Return how many of ``total`` rows are this process'."""
        return len(range(self.rank, total, self.world))

    def weight(self, total: int) -> float:
        """Return by what the mean over this part is multiplied so that the mean over processes is that over all rows.

        One where all parts are equal. Example: of 5 rows two processes have 3 and 2; 3 * 2 / 5 and 2 * 2 / 5.
        """
        return self.count(total) * self.world / total


WHOLE = Share()


def to_float(images: Tensor) -> Tensor:
    """Map uint8 (N, C, H, W) to float32 in [0, 1]."""
    return images.to(torch.float32).div_(255.0)


def normalise(images: Tensor, by: Normalization | None) -> Tensor:
    """Subtract the mean and divide by the standard deviation of each channel; the paper does neither (None)."""
    if by is None:
        return images
    mean, std = images.new_tensor(by)[:, :, None, None].unbind()
    return (images - mean) / std


def denormalise(images: Tensor, by: Normalization | None) -> Tensor:
    """Undo :func:`normalise`, up to rounding."""
    if by is None:
        return images
    mean, std = images.new_tensor(by)[:, :, None, None].unbind()
    return images * std + mean


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Pad (N, C, H, W) by zeros on every side and crop each image back to its size at its own place.

    ``top`` and ``left`` (int64, (N,)) are the crops' edges in the padded images, 0 .. 2 * padding.
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    tall, wide = padded.shape[-2:]
    # Every row of pixels of a crop lies in one piece in the padded images: rows are copied, each from where it starts,
    # which is a tenth of the time of gathering pixel by pixel.
    planes = torch.arange(count * channels, device=images.device)[:, None] * tall
    first = top.repeat_interleave(channels)[:, None] + torch.arange(height, device=images.device)
    starts = (planes + first) * wide + left.repeat_interleave(channels)[:, None]
    rows = padded.reshape(-1).unfold(0, width, 1).index_select(0, starts.view(-1))
    return rows.view(count, channels, height, width)


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Flip the images left-right where ``which`` (bool, (N,)) is true; it lives on the CPU, so that nothing waits."""
    at = which.nonzero().flatten().to(images.device, non_blocking=True)
    result = images.clone()
    result[at] = images.index_select(0, at).flip(-1)
    return result


def augment(
    images: Tensor, kind: Augmentation, random: torch.Generator, share: Share = WHOLE, total: int | None = None
) -> Tensor:
    """Augment images (N, C, H, W) of any type; ``random`` lives on the CPU, whatever the device.

    The images are the part ``share`` of a batch of ``total`` rows, by default all of it. Numbers are drawn for the
    whole batch, so that an image is treated alike whichever process handles it.
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
        images = flip(images, share.of(torch.rand(count, generator=random, dtype=torch.float32) < 0.5))
    return images
