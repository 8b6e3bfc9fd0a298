"""Batches of a training run: shuffled, augmented, float, on the device - a pure function of seed, epoch and step."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import WHOLE, Augmentation, Share, augment, to_float
from indelible.data.images import Batch, Data

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False, kw_only=True)
class Batches:
    """The batches of every epoch over ``data``.

    The last batch of an epoch may be smaller; a single row is left out (BatchNorm cannot normalise one). Rows,
    augmentation and the number of steps do not depend on the number of processes: a run can go on with another number.
    """

    data: Data
    batch_size: int  # a multiple of ``world``
    seed: int
    augmentation: Augmentation = "crop-flip"
    device: torch.device = _CPU  # where batches are wanted
    rank: int = 0  # of this process; each sees its own rows of every batch
    world: int = 1  # processes that share a batch

    def __post_init__(self) -> None:
        if len(self.data) == 0:
            raise InputError(f"the data set {self.data.name!r} is empty. Give at least two images.")
        if self.batch_size < 2:
            raise InputError(f"the batch size must be at least 2, got {self.batch_size}.")
        if self.batch_size % self.world:
            raise InputError(
                f"the batch size must be a multiple of the {self.world} processes that share it, got "
                f"{self.batch_size}. Choose {self.batch_size - self.batch_size % self.world + self.world}."
            )

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(len(self.data), self.batch_size)
        return whole + (rest >= 2) or 1

    def rows(self, step: int) -> int:
        """Return how many rows batch ``step`` of an epoch has, over all processes."""
        return min(self.batch_size, len(self.data) - step * self.batch_size)

    def share(self, step: int) -> Share:
        """Return which rows of batch ``step`` this process handles.

        A last batch too small to give every process two rows is handled whole by each: their gradients are equal, and
        so is the mean of them.
        """
        return WHOLE if self.rows(step) < 2 * self.world else Share(self.rank, self.world)

    def order(self, epoch: int) -> Tensor:
        """Return the order of rows in ``epoch``: int64 (N,)."""
        return torch.randperm(len(self.data), generator=generator(self.seed, "order", epoch))

    def indices(self, epoch: int, step: int) -> Tensor:
        """Return the rows of the data set that batch ``step`` of ``epoch`` has, over all processes: int64 (n,)."""
        return self.order(epoch)[step * self.batch_size :][: self.rows(step)]

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield (float images in [0, 1], int64 labels) of ``epoch``, from its batch ``start`` on."""
        order = self.order(epoch)[: self.steps * self.batch_size]
        parts = [self.share(step).of(rows) for step, rows in enumerate(order.split(self.batch_size))]
        for step, (images, labels) in enumerate(self._read(parts[start:]), start):
            random = generator(self.seed, "augment", epoch, step, 0)
            share, total = self.share(step), self.rows(step)
            yield to_float(augment(images, self.augmentation, random, share, total)), labels

    def _read(self, parts: list[Tensor]) -> Iterator[Batch]:
        size = self.batch_size // self.world
        # A last batch that every process handles whole may be larger than a part.
        last = parts.pop() if parts and len(parts[-1]) > size else None
        if parts:
            yield from self.data.iterate(torch.cat(parts), size, self.device)
        if last is not None:
            yield from self.data.iterate(last, len(last), self.device)
