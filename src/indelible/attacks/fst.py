"""FST: feature-shift tuning - a new head that must differ from the stolen one, so that features have to move.

Paper: Min, Qin, Shen, Cheng, "Towards Stable Backdoor Purification through Feature Shift Tuning", NeurIPS 2023, Section
4, Equation (1); settings of its authors' code.

    min over all weights of  CE + alpha * <w, w_0>     subject to ||w|| = ||w_0||

w is the weight of the last linear layer, drawn anew before training, w_0 the stolen one.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | by budget: 0.05, 0.1 or 0.2 | the authors' command: 0.1; their code's default: 0.2 |

All settings and how it differs: docs/attacks/fst.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.attacks.strengths import TrainedStrength
from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.taps import last_layer
from indelible.train import Objective, Schedule, Step

ALPHAS = (0.05, 0.1, 0.2)


def feature_shift_loss(logits: Tensor, labels: Tensor, head: Tensor, original: Tensor, alpha: float) -> Tensor:
    """Return CE + alpha * <w, w_0>, with w the ``head`` and w_0 the ``original``, of the same shape."""
    return F.cross_entropy(logits, labels) + alpha * (head * original).sum()


@torch.no_grad()
def with_norm_of(head: Tensor, original: Tensor) -> None:
    """Scale ``head`` in place to the norm of ``original``."""
    head.mul_(torch.linalg.vector_norm(original) / torch.linalg.vector_norm(head))


def head_of(model: nn.Module, images: Tensor, classes: int) -> str:
    """Return the name of the linear layer or convolution that is called last; it must have an output per class."""
    last = last_layer(model, images)
    weight = None if last is None else last.layer.get_parameter("weight")
    if last is None or weight is None or len(weight) != classes:
        got = "none" if last is None or weight is None else f"{last.place[0]!r} with {len(weight)} outputs"
        raise InputError(
            f"{type(model).__name__} must end in a linear layer or convolution with {classes} outputs for FST, got "
            f"{got}. Choose an attack that needs none, such as ft."
        )
    if not weight.requires_grad:
        raise InputError(
            f"FST trains the last layer, but {last.place[0]!r} is frozen. Set requires_grad, or choose ft."
        )
    return last.place[0]


@torch.no_grad()
def renew(layer: nn.Module, random: torch.Generator) -> None:
    """Draw weight and bias of a linear layer or convolution anew, uniform within 1 / sqrt(inputs)."""
    parameters = dict(layer.named_parameters(recurse=False))
    bound = parameters["weight"][0].numel() ** -0.5
    for parameter in parameters.values():
        drawn = torch.rand(parameter.shape, generator=random, dtype=torch.float32)
        parameter.copy_(drawn.mul_(2.0 * bound).sub_(bound))


class FeatureShift(Objective):
    """Cross-entropy, and alpha times the inner product of the head, a parameter of the model, with the stolen one."""

    def __init__(self, head: Tensor, original: Tensor, alpha: float) -> None:
        self.head, self.original, self.alpha = head, original, alpha

    def loss(self, step: Step) -> Tensor:
        """Restore the norm that the optimiser's last step left, then return the loss."""
        with_norm_of(self.head, self.original)
        logits = logits_of(step.model(step.images))
        return feature_shift_loss(logits, step.labels, self.head, self.original, self.alpha)


@ATTACKS.register(
    name="fst",
    title="Feature-shift tuning",
    paper="Min et al., NeurIPS 2023",
    summary="Draw the last layer anew and tune all weights while it is pushed away from the stolen one.",
    cost="10 epochs of the attacker's images for each of three weights of the push",
)
@dataclass(frozen=True, kw_only=True)
class FeatureShiftTuning(TrainedStrength):
    """Tune all weights behind a new, different head; docs/attacks/fst.md explains each setting."""

    strength = "alpha"
    strengths = ALPHAS
    cpu_settings = {"epochs": 6}
    ranges = {"alpha": "[0, inf)"}

    alpha: float | None = None
    epochs: int = 10
    lr: float = 0.01
    weight_decay: float = 0.0

    def train(self, job: Removal, model: nn.Module, value: float, data: Data) -> None:
        """Draw the head anew and tune all weights with alpha ``value``."""
        name = head_of(model, job.sample(), len(job.data.classes))
        job.note(head=name)
        layer = model.get_submodule(name)
        head = layer.get_parameter("weight")
        original = head.detach().clone()
        renew(layer, generator(job.seed, "fst"))
        settings = self.training(schedule=Schedule(kind="cosine", warmup=0.0))
        objective = FeatureShift(head, original, value)
        job.train(settings, phase=f"tuning, alpha {value:g}", objective=objective, data=data, model=model)
        with_norm_of(head, original)
