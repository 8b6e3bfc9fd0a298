"""Batches of a training run: shuffled, augmented, float, on the device - a pure function of seed, epoch and step."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import Augmentation, augment, to_float
from indelible.data.images import Batch, Data

__all__ = ["Batches", "rows_of"]

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False, kw_only=True)
class Batches:
    """The batches of every epoch over ``data``.

    Attributes:
        data: The training set.
        batch_size: Rows in a batch, a multiple of ``world``. The last batch of an epoch may be smaller; it is left out
            when a process would get fewer than two rows of it (BatchNorm cannot normalise one).
        seed: The run's seed.
        augmentation: What to do to each image.
        device: Where batches are wanted.
        rank: Which process this is of ``world`` processes; each sees its own rows of every batch.
        world: How many processes share a batch.
    """

    data: Data
    batch_size: int
    seed: int
    augmentation: Augmentation = "crop-flip"
    device: torch.device = _CPU
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if len(self.data) == 0:
            raise InputError(f"the data set {self.data.name!r} is empty. Give at least two images.")
        if self.batch_size < 2:
            raise InputError(f"the batch size must be at least 2, but is {self.batch_size}.")
        if self.batch_size % self.world:
            raise InputError(
                f"the batch size must be a multiple of the {self.world} processes that share it, but is "
                f"{self.batch_size}. Choose {self.batch_size - self.batch_size % self.world + self.world}."
            )

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(len(self.data), self.batch_size)
        return whole + (rest >= 2 * self.world) or 1

    def order(self, epoch: int) -> Tensor:
        """Return the order of rows in ``epoch``: int64 (N,)."""
        return torch.randperm(len(self.data), generator=generator(self.seed, "order", epoch))

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield (float images in [0, 1], int64 labels) of ``epoch``, from its batch ``start`` on."""
        order = self.order(epoch)[: self.steps * self.batch_size]
        rows = rows_of(order[start * self.batch_size :], self.batch_size, self.rank, self.world)
        size = -(-self.batch_size // self.world)
        for step, (images, labels) in enumerate(self.data.iterate(rows, size, self.device), start):
            random = generator(self.seed, "augment", epoch, step, self.rank)
            yield to_float(augment(images, self.augmentation, random)), labels


def rows_of(order: Tensor, batch_size: int, rank: int, world: int) -> Tensor:
    """Return the rows of every batch that process ``rank`` of ``world`` handles, in order.

    Each batch is cut into ``world`` parts of (nearly) equal size; parts are contiguous, so that joining the parts of
    all processes gives the batch that one process would have seen.
    """
    if world == 1:
        return order
    parts = [batch.tensor_split(world)[rank] for batch in torch.split(order, batch_size)]
    return torch.cat(parts)
