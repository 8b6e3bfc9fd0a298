"""NAD: neural attention distillation - a fine-tuned copy teaches the stolen model where to look.

Paper: Li et al., "Neural Attention Distillation: Erasing Backdoor Triggers from Deep Neural Networks", ICLR 2021,
Section 3; settings of the ICCV 2023 paper, Appendix B.4, and its authors' code.

    A(F) = sum_c |F_c|^p,   L = CE + sum over stages of beta * mean (A(F_S) / ||A(F_S)|| - A(F_T) / ||A(F_T)||)^2

| symbol | name | ``sound`` | ``paper`` | source |
|---|---|---|---|---|
| p | ``power`` | 2 | 2 | NAD, Section 3.2 |
| beta | ``beta`` | by budget: 1500, 150 or 15 | 2000 | ICCV 2023, Appendix B.4: 1500; the authors' code |

Stages, all settings, how beta is chosen and the slips that ``paper`` keeps: docs/attacks/nad.md.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import Trials
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.taps import Place, stage_outputs, tapped
from indelible.train import Objective, Schedule, Step, TrainSettings
from indelible.train.evaluate import evaluating

BETAS, PAPER_BETA = (1500.0, 150.0, 15.0), 2000.0
TEACHER_DECAY = 5e-4
_TINY = 1e-6


@ATTACKS.register(
    name="nad",
    title="Neural attention distillation",
    paper="Li et al., ICLR 2021",
    summary="Fine-tune a copy, then train the stolen model to look where the copy looks.",
    cost="30 epochs of the attacker's images; 20 more for each beta that is too large",
)
@dataclass(frozen=True, kw_only=True)
class NeuralAttentionDistillation(RemovalAttack):
    """Fine-tune a teacher, distil its attention; docs/attacks/nad.md explains each setting."""

    # What is left out are the epochs at a hundredth of the rate and less.
    cpu_settings = {"teacher_epochs": 5, "epochs": 5}

    power: float = 2.0
    beta: float | None = None
    ba_drop: float = 0.02
    teacher_epochs: int = 10
    epochs: int = 10
    lr: float = 0.02
    every: float = 2
    gamma: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch_size: int = 64

    def why_one_process(self) -> str:
        """Several processes can share it where there is no beta to choose: then it is training and nothing else."""
        return "" if self._fixed() is not None else RemovalAttack.why_one_process(self)

    def passes(self, images: float, classes: int) -> float:
        return images * (self.teacher_epochs + 2 * self.epochs)

    def run(self, job: Removal) -> None:
        """Make the teacher, then train the stolen model beside it, with the largest beta that the budget allows."""
        stages, fixed = stage_outputs(job.model, job.sample()), self._fixed()
        settings = self.training(
            epochs=self.teacher_epochs, weight_decay=TEACHER_DECAY, schedule=Schedule.every(self.every, self.gamma)
        )
        teacher = copy.deepcopy(job.model)
        if fixed is not None:
            job.train(settings, phase="teacher", model=teacher)
            self._distil(job, settings, AttentionTransfer(job.model, teacher, stages, fixed, self.power), job.data)
            job.note(beta=fixed, stages=[name for name, _ in stages])
            return
        trials = Trials(job)
        job.train(settings, phase="teacher", model=teacher, data=trials.fitting)
        for beta in BETAS:
            student = copy.deepcopy(job.model)
            self._distil(job, settings, AttentionTransfer(student, teacher, stages, beta, self.power), trials.fitting)
            if trials.keep(beta, student) >= trials.reference - self.ba_drop:
                break
        chosen = trials.best(self.ba_drop)
        job.model.load_state_dict(trials.kept[chosen])
        tried = {f"{beta:g}": accuracy for beta, accuracy in zip(trials.kept, trials.accuracies, strict=True)}
        job.note(beta=chosen, tried=tried, accuracy=trials.reference, stages=[name for name, _ in stages])

    def _fixed(self) -> float | None:
        return PAPER_BETA if self.beta is None and self.protocol == "paper" else self.beta

    def _distil(self, job: Removal, settings: TrainSettings, objective: "AttentionTransfer", data: Data) -> None:
        paper = self.protocol == "paper"
        job.train(
            settings.but(
                epochs=self.epochs, weight_decay=self.weight_decay, schedule=Schedule() if paper else settings.schedule
            ),
            phase=f"distillation, beta {objective.beta:g}", objective=objective, data=data, model=objective.student,
        )  # fmt: skip


def attention_map(features: Tensor, power: float = 2.0) -> Tensor:
    """Return where features (N, C, H, W) or (N, tokens, D) are active: the sum over channels of |F|^p, norm 1."""
    channels = 1 if features.ndim == 4 else 2
    active: Tensor = features.float().abs().pow(power).sum(channels).flatten(1)
    size: Tensor = torch.linalg.vector_norm(active, dim=1, keepdim=True)
    return active / (size + _TINY)


class AttentionTransfer(Objective):
    """Cross-entropy, and beta times the squared distance to the teacher's attention maps at each stage."""

    def __init__(
        self, student: nn.Module, teacher: nn.Module, stages: Sequence[Place], beta: float, power: float
    ) -> None:
        self.student, self.teacher, self.stages, self.beta, self.power = student, teacher, stages, beta, power

    def loss(self, step: Step) -> Tensor:
        """Return the loss of the batch."""
        with tapped(self.teacher, self.stages) as seen, evaluating(self.teacher):
            self.teacher(step.images)
        with tapped(self.student, self.stages) as own:
            loss = F.cross_entropy(logits_of(step.model(step.images)), step.labels)
        for stage in self.stages:
            wanted = attention_map(seen[stage], self.power).clone()
            loss = loss + self.beta * F.mse_loss(attention_map(own[stage], self.power), wanted)
        return loss

    def passes(self, rows: int) -> int:
        """Return the images passed forward, by the student and by the teacher."""
        return 2 * rows
