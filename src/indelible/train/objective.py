"""Objectives: what a step minimises. The loop owns data, optimiser and checkpoints; an objective owns the gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.data.augment import Share
from indelible.nn.collectives import LOCAL, GradientSync, Scale
from indelible.nn.outputs import logits_of


@dataclass(frozen=True)
class Step:
    """One step of a run, as an objective sees it.

    Use ``backward`` instead of ``loss.backward()``: it knows the device's precision and, with several processes, the
    weight of this process' rows. The loop averages gradients over processes once a step is done; an objective needs
    ``sync.average`` only for what it uses earlier. One that takes a gradient by itself multiplies its loss by ``scale``
    first: gradients that are added up must have one scale, and small ones would vanish in float16 without it.
    """

    model: nn.Module  # to call; it may be wrapped for the device
    images: Tensor  # float (N, C, H, W) on the device
    labels: Tensor  # int64 (N,)
    number: int  # steps done before this one, over the whole run
    epoch: int  # from 0
    backward: Callable[[Tensor], None]
    sync: GradientSync = LOCAL  # how an objective takes gradients by itself; what it leaves is averaged afterwards
    indices: Callable[[], Tensor] | None = None  # rows of the training set in the batch of all processes: int64, CPU

    @property
    def share(self) -> Share:
        """Which rows of the step's batch this process has."""
        return self.sync.share

    @property
    def scale(self) -> Scale:
        """What a loss is multiplied by before its gradient is taken."""
        return self.sync.scale


class Objective:
    """Base of objectives: override :meth:`loss`, or :meth:`backward` for gradients that are not those of one loss.

    Keep no state between steps: a run that resumes must not need it.
    """

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


class CrossEntropy(Objective):
    """The ordinary loss of a classifier."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def loss(self, step: Step) -> Tensor:
        """Return the mean cross-entropy of the batch."""
        logits = logits_of(step.model(step.images))
        return F.cross_entropy(logits, step.labels, label_smoothing=self.label_smoothing)


def distillation_loss(student: Tensor, teacher: Tensor, *, hard: bool, temperature: float) -> Tensor:
    """Return how far the student's logits (N, K) are from the teacher's; ``hard``: from the teacher's first choice."""
    if hard:
        return F.cross_entropy(student, teacher.argmax(1))
    wanted, given = (F.log_softmax(logits / temperature, 1) for logits in (teacher, student))
    # T^2 keeps the size of the gradient: each softmax shrinks it by 1 / T.
    return temperature**2 * F.kl_div(given, wanted, log_target=True, reduction="batchmean")


class Distillation(Objective):
    """Learn a teacher's answers to the images of each step."""

    def __init__(self, teacher: nn.Module, *, hard: bool, temperature: float) -> None:
        self.teacher, self.hard, self.temperature = teacher.eval().requires_grad_(False), hard, temperature

    def loss(self, step: Step) -> Tensor:
        """Return the distance to the teacher's answers."""
        with torch.no_grad():
            answers = logits_of(self.teacher(step.images))
        given = logits_of(step.model(step.images))
        return distillation_loss(given, answers, hard=self.hard, temperature=self.temperature)

    def passes(self, rows: int) -> int:
        """Teacher and student see each image."""
        return 2 * rows
