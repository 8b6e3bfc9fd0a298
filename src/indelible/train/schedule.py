"""Learning-rate schedules as pure functions of the progress of a run: nothing to store, nothing to resume."""

import math
from dataclasses import dataclass
from typing import Literal, Self

from indelible.base.errors import InputError, UnknownNameError

__all__ = ["Schedule"]

_KINDS = ("constant", "milestones", "every", "one-cycle", "cosine", "late-fall")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """By what factor the learning rate is multiplied at each moment.

    Attributes:
        kind: ``"constant"``; ``"milestones"``: times ``gamma`` at each epoch in ``epochs``; ``"every"``: times
            ``gamma`` every ``epochs[0]`` epochs; ``"one-cycle"``: linear rise for the share ``warmup`` of the run, then
            linear fall to zero; ``"cosine"``: the same rise, then half a cosine to zero; ``"late-fall"``: flat for half
            the run, then a linear fall to a hundredth at nine tenths of it.
        epochs: Milestones, or the one interval.
        gamma: The factor at each milestone.
        warmup: Share of the run in which the rate rises.
    """

    kind: Literal["constant", "milestones", "every", "one-cycle", "cosine", "late-fall"] = "constant"
    epochs: tuple[float, ...] = ()
    gamma: float = 0.1
    warmup: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UnknownNameError("schedule", self.kind, _KINDS)
        if self.kind == "every" and (len(self.epochs) != 1 or self.epochs[0] <= 0):
            raise InputError(f"the schedule 'every' takes one positive interval, but came with {self.epochs}.")
        if not 0.0 <= self.warmup < 1.0:
            raise InputError(f"warmup is a share of the run in [0, 1), but is {self.warmup}.")
        object.__setattr__(self, "epochs", tuple(self.epochs))  # JSON gives lists

    @classmethod
    def milestones(cls, *epochs: float, gamma: float = 0.1) -> Self:
        """Multiply by ``gamma`` at each of ``epochs`` (the paper's embedding: 50 and 75 of 100)."""
        return cls(kind="milestones", epochs=epochs, gamma=gamma)

    @classmethod
    def every(cls, epochs: float, gamma: float = 0.5) -> Self:
        """Multiply by ``gamma`` every ``epochs`` epochs (the paper's fine-tuning: 0.5 every 5)."""
        return cls(kind="every", epochs=(epochs,), gamma=gamma)

    @classmethod
    def one_cycle(cls, warmup: float = 0.2) -> Self:
        """Rise linearly, then fall linearly to zero."""
        return cls(kind="one-cycle", warmup=warmup)

    def factor(self, epoch: float, total: float) -> float:
        """Return the factor at ``epoch`` (with fraction) of ``total`` epochs."""
        if self.kind == "milestones":
            return self.gamma ** sum(epoch >= milestone for milestone in self.epochs)
        if self.kind == "every":
            return self.gamma ** int(epoch // self.epochs[0])
        if self.kind == "constant":
            return 1.0
        share = min(epoch / total, 1.0)
        if self.kind == "late-fall":
            return 1.0 - 0.99 * min(max((share - 0.5) / 0.4, 0.0), 1.0)
        if share < self.warmup:
            return share / self.warmup
        fall = (share - self.warmup) / (1.0 - self.warmup)
        return 1.0 - fall if self.kind == "one-cycle" else 0.5 * (1.0 + math.cos(math.pi * fall))
