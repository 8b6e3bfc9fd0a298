"""Objectives: what a step minimises. The loop owns data, optimiser and checkpoints; an objective owns the gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.data.augment import WHOLE, Share
from indelible.nn.collectives import Average, GradientSync, Scale, alone, unscaled
from indelible.nn.outputs import logits_of


@dataclass(frozen=True)
class Step:
    """One step of a run, as an objective sees it.

    Use ``backward`` instead of ``loss.backward()``: it knows the device's precision and, with several processes, the
    weight of this process' rows. The loop averages gradients over processes once a step is done; an objective needs
    ``average`` only for what it uses earlier. One that takes a gradient by itself multiplies its loss by ``scale``
    first: gradients that are added up must have one scale, and small ones would vanish in float16 without it.
    """

    model: nn.Module  # to call; it may be wrapped for the device
    images: Tensor  # float (N, C, H, W) on the device
    labels: Tensor  # int64 (N,)
    number: int  # steps done before this one, over the whole run
    epoch: int  # from 0
    backward: Callable[[Tensor], None]
    share: Share = WHOLE  # which rows of the step's batch this process has
    average: Average = alone
    scale: Scale = unscaled
    indices: Callable[[], Tensor] | None = None  # rows of the training set in the batch of all processes: int64, CPU

    @property
    def sync(self) -> GradientSync:
        """How an objective takes gradients by itself; the loop averages what it leaves in the parameters."""
        return GradientSync(self.share, self.average, self.scale)


class Objective:
    """Base of objectives: override :meth:`loss`, or :meth:`backward` for gradients that are not those of one loss.

    Keep no state that :meth:`state_dict` does not show.
    """

    def start(self, model: nn.Module, device: torch.device) -> None:
        """Get ready on ``device``; called once before the first step of every session."""

    def loss(self, step: Step) -> Tensor:
        """Return what this step minimises, a scalar with its graph."""
        raise NotImplementedError

    def backward(self, step: Step) -> Tensor:
        """Add this step's gradients to the parameters and return the loss, detached, for the history."""
        loss = self.loss(step)
        step.backward(loss)
        return loss.detach()

    def passes(self, rows: int) -> int:
        """Return how many images a step with ``rows`` ordinary images passes forward, over all processes."""
        return rows

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return what a resumed run needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""

    def settings(self) -> Mapping[str, Any]:
        """Return what decides the gradients, for the check that a checkpoint belongs to this run."""
        return {}


class CrossEntropy(Objective):
    """The ordinary loss of a classifier."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def loss(self, step: Step) -> Tensor:
        """Return the mean cross-entropy of the batch."""
        logits = logits_of(step.model(step.images))
        return F.cross_entropy(logits, step.labels, label_smoothing=self.label_smoothing)
