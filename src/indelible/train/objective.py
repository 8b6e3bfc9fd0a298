"""What a step minimises. The loop owns data, optimiser and checkpoints; an objective owns the gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.data.share import WHOLE, Share
from indelible.nn.outputs import logits_of

__all__ = ["CrossEntropy", "Objective", "Scale", "Step", "alone", "unscaled"]

Scale = Callable[[Tensor], Tensor]
"""Multiplies a loss by the gradient scale of a float16 run: what ``GradScaler.scale`` does."""


def alone(_tensors: Sequence[Tensor]) -> None:
    """Average over one process: there is nothing to do."""


def unscaled(loss: Tensor) -> Tensor:
    """Scale for any precision but float16: there is nothing to do."""
    return loss


@dataclass(frozen=True)
class Step:
    """One step of a run, as an objective sees it.

    Attributes:
        model: The module to call; it may be wrapped for the device.
        images: float (N, C, H, W) on the device.
        labels: int64 (N,).
        number: Steps done before this one, over the whole run.
        epoch: The epoch this step belongs to, from 0.
        backward: Use instead of ``loss.backward()``: it knows the device's precision and, with several processes, the
            weight of this process' rows.
        share: Which rows of the step's batch this process has.
        average: Replaces tensors by their mean over processes, in place. The loop does that to the gradients once a
            step is done; an objective needs it only for what it uses earlier.
        scale: For an objective that takes a gradient by itself: scale its loss by this first, as ``backward`` does.
            Gradients that are added up must have one scale, and small ones would vanish in float16 without it.
        indices: Returns which rows of the training set the whole batch has, over all processes: int64, on the CPU.
    """

    model: nn.Module
    images: Tensor
    labels: Tensor
    number: int
    epoch: int
    backward: Callable[[Tensor], None]
    share: Share = WHOLE
    average: Callable[[Sequence[Tensor]], None] = alone
    scale: Scale = unscaled
    indices: Callable[[], Tensor] | None = None


class Objective:
    """Base of objectives: override :meth:`backward`; keep no state that :meth:`state_dict` does not show."""

    def start(self, model: nn.Module, device: torch.device) -> None:
        """Get ready on ``device``; called once before the first step of every session."""

    def backward(self, step: Step) -> Tensor:
        """Add this step's gradients to the parameters and return the loss, detached, for the history."""
        raise NotImplementedError

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

    def backward(self, step: Step) -> Tensor:
        """Add the gradient of the mean cross-entropy of the batch."""
        logits = logits_of(step.model(step.images))
        loss = F.cross_entropy(logits, step.labels, label_smoothing=self.label_smoothing)
        step.backward(loss)
        return loss.detach()
