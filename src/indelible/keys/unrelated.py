"""The unrelated mark: images of another domain, all labelled as the target (the paper's Section 4.1, "Unrelated").

The paper takes SVHN's digit 0. Here the images come from any second data set; the secret decides which of them are
embedded and which are kept for verification, and no image serves both. An owner without a second data set gets images
from a generator that the secret seeds: interference patterns of plane waves in the key's own palette, endlessly many,
all of one recognisable family.

| choice | derived from the secret |
|---|---|
| order of the pool | a permutation; the first half is for embedding, the second for verification |
| generated images | palette and wave lengths belong to the key; directions, phases and bends to each image |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.data.convert import fit_shape
from indelible.data.images import ImageData, Shape
from indelible.keys.derive import Choices, expand
from indelible.keys.marks import MARKS, Mark, Purpose, Stamps

_WAVES = 3
_LEAST_OF_CLASS = 4
_GENERATED = 1 << 20  # verification samples of a generated family start here, far behind those for embedding
# Images of a family that training draws from, and the bytes that all families together may take.
_FAMILY = 64
_FAMILY_BYTES = 1 << 27


class FamilyStamps(Stamps):
    """Families of images that take the place of rows."""

    def __init__(self, marks: "Sequence[UnrelatedMark]", device: torch.device) -> None:
        super().__init__(marks, device)
        most = max(8, _FAMILY_BYTES // (len(marks) * math.prod(marks[0].shape)))
        room = [size for mark in marks if (size := mark.capacity("embed")) is not None]
        self._images = torch.stack([mark.samples(None, min([_FAMILY, most, *room]), "embed") for mark in marks]).to(
            device
        )

    def apply(self, images: Tensor, which: Tensor, random: Tensor) -> Tensor:
        """Return an image of each row's family."""
        return self._images[which, random % self._images.shape[1]].to(images.dtype) / 255.0


@MARKS.register(name="unrelated", summary="images of another domain")
@dataclass(frozen=True, kw_only=True, eq=False)
class UnrelatedMark(Mark):
    """A family of images that belong to no class of the task: of a ``pool``, uint8 (N, C, H, W), or generated."""

    secret: bytes
    shape: Shape
    pool: Tensor | None = None
    own_images: ClassVar[bool] = True
    stamps = FamilyStamps

    def __repr__(self) -> str:
        return f"UnrelatedMark(shape={self.shape}, pool={'generated' if self.pool is None else len(self.pool)})"

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, pool: Tensor | None = None, **_: Any) -> Self:
        """Return the family of a secret."""
        return cls(secret=secret, shape=shape, pool=pool)

    def capacity(self, purpose: Purpose) -> int | None:
        """Return how many samples there are for ``purpose``; None when they are endless."""
        if self.pool is None:
            return None
        half = len(self.pool) // 2
        return half if purpose == "embed" else len(self.pool) - half

    def samples(self, plain: Tensor | None, count: int, purpose: Purpose) -> Tensor:  # noqa: ARG002 - no carriers
        """Return ``count`` images of the family as uint8 (count, C, H, W); the same call gives the same."""
        room = self.capacity(purpose)
        if room is not None and count > room:
            raise InputError(
                f"the second data set has {room} images to {purpose}, too few for {count} unrelated samples. "
                "Give a larger one, or embed a smaller share."
            )
        if self.pool is None:
            first = 0 if purpose == "embed" else _GENERATED
            return _waves(self.secret, self.shape, first, count)
        order = torch.from_numpy(Choices(self.secret, "unrelated/order").permutation(len(self.pool)))
        half = len(self.pool) // 2
        return self.pool[order[:count] if purpose == "embed" else order[half : half + count]]


def single_pool(source: ImageData, shape: Shape, source_class: int | None) -> Tensor:
    """Return the images of ``source``, of one class if given, brought to ``shape``: uint8 (N, C, H, W)."""
    images = source.images if source_class is None else source.images[source.labels == source_class]
    if len(images) < 4:
        raise InputError(
            f"unrelated samples need at least 4 images of {source.name!r} (half to embed, half to verify), "
            f"got {len(images)}. Check source_class."
        )
    return fit_shape(images, shape)


def family_pool(source: ImageData, shape: Shape, source_class: int | None, marks: int) -> Tensor:
    """Return a class of ``source`` for each of ``marks`` marks, fewer if it has fewer: uint8 (K, M, C, H, W)."""
    if source_class is not None:
        raise InputError(
            "a codebook of unrelated images takes one class of the second data set for every mark. Leave out "
            "source_class, or give target= for the paper's single class."
        )
    counts = torch.bincount(source.labels, minlength=len(source.classes))
    taken = (counts >= _LEAST_OF_CLASS).nonzero().flatten()[:marks]
    if len(taken) < 2:
        raise InputError(
            f"a codebook needs at least 2 classes of {source.name!r} with {_LEAST_OF_CLASS} images each, got "
            f"{len(taken)}. Give another data set, or leave it out to generate images."
        )
    each = int(counts[taken].min())
    rows = torch.stack([(source.labels == label).nonzero().flatten()[:each] for label in taken.tolist()])
    return fit_shape(source.images[rows.flatten()], shape).reshape(len(taken), each, *shape)


def _waves(secret: bytes, shape: Shape, first: int, count: int) -> Tensor:
    """Generate images number ``first`` .. ``first + count - 1`` of the secret's family."""
    channels, height, width = shape
    family = Choices(secret, "unrelated/family")
    lengths = np.array([4.0 + family.below(1000) / 1000.0 * 8.0 for _ in range(_WAVES)])
    palette = np.array([[family.below(256) for _ in range(channels)] for _ in range(2)], dtype=np.float64)
    # Two colours that are too close would make a flat picture: push them apart, channel by channel.
    palette[1] = np.where(np.abs(palette[0] - palette[1]) < 96, (palette[0] + 128) % 256, palette[1])
    hidden = expand(secret, "unrelated/images")
    words = np.stack([Choices(hidden, str(first + number)).words(_WAVES * 3) for number in range(count)])
    own = words.astype(np.float64) / 2.0**64
    angle, phase, bend = (2 * math.pi * own.reshape(count, 3, _WAVES)).transpose(1, 0, 2)
    rows, columns = np.mgrid[0:height, 0:width] * (32.0 / max(height, width))
    total = np.zeros((count, height, width))
    for wave in range(_WAVES):
        a, p, b = (value[:, wave, None, None] for value in (angle, phase, bend))
        along = np.cos(a) * columns + np.sin(a) * rows + 2.0 * np.sin(b + rows / 6.0)
        total += np.sin(2 * math.pi * along / lengths[wave] + p)
    share = 1.0 / (1.0 + np.exp(-2.0 * total))
    mixed = palette[0][:, None, None] * share[:, None] + palette[1][:, None, None] * (1.0 - share[:, None])
    return torch.from_numpy(np.rint(mixed).clip(0, 255).astype(np.uint8))
