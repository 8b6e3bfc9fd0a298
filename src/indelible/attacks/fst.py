"""FST: feature-shift tuning - a new head that must differ from the stolen one, so that features have to move.

Paper: Min, Qin, Shen, Cheng, "Towards Stable Backdoor Purification through Feature Shift Tuning", NeurIPS 2023, Section
4, Equation (1); settings of its authors' code.

    min over all weights of  CE + alpha * <w, w_0>     subject to ||w|| = ||w_0||

w is the weight of the last linear layer, drawn anew before training, w_0 the stolen one.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | by budget: 0.05, 0.1 or 0.2 | the authors' command: 0.1; their code's default: 0.2 |
| - | ``ba_drop`` | 0.02 | ours: points of held-out accuracy that the attack may cost |
| - | ``epochs`` | 10; 6 in the preset ``cpu`` | the authors' command |
| - | ``lr``, ``momentum``, ``weight_decay`` | 0.01, 0.9, 0 | the authors' code; the rate falls by a cosine |
| - | ``batch_size`` | 128 | the authors' code |

The head is the linear layer (or convolution) that is called last, found by tracing; it must have one output for each
class. Its weight and bias are drawn uniformly within 1 / sqrt(inputs), as in the authors' code. The norm is restored
before every step and once at the end; the original restores it after every step, which is the same but for the first.

Recipe ``sound`` only: the ICCV 2023 paper on watermarks did not run this attack. How it differs from the original:
alpha is chosen on a tenth of the attacker's images that is not trained on (an ``alpha`` that is given is taken, and
then all images are trained on); the cosine falls step by step instead of epoch by epoch; crop and flip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from indelible.attacks.base import ATTACKS, Removal
from indelible.attacks.one_recipe import OneRecipe
from indelible.attacks.strengths import try_strengths
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.base.registry import MethodInfo
from indelible.base.seeding import generator
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.taps import trace
from indelible.train import Objective, Schedule, TrainSettings
from indelible.train.objective import Step

__all__ = ["ALPHAS", "FeatureShift", "FeatureShiftTuning", "feature_shift_loss", "head_of", "renew", "with_norm_of"]

ALPHAS = (0.05, 0.1, 0.2)


def feature_shift_loss(logits: Tensor, labels: Tensor, head: Tensor, original: Tensor, alpha: float) -> Tensor:
    """Return CE + alpha * <w, w_0>.

    Args:
        logits: (N, K).
        labels: (N,).
        head: w.
        original: w_0, shaped like ``head``.
        alpha: Weight of the inner product.
    """
    return F.cross_entropy(logits, labels) + alpha * (head * original).sum()


@torch.no_grad()
def with_norm_of(head: Tensor, original: Tensor) -> None:
    """Scale ``head`` in place to the norm of ``original``."""
    head.mul_(torch.linalg.vector_norm(original) / torch.linalg.vector_norm(head))


def head_of(model: nn.Module, images: Tensor, classes: int) -> str:
    """Return the name of the linear layer or convolution that is called last.

    Args:
        model: Any network.
        images: A small batch, as the model expects it.
        classes: How many outputs it must have.
    """
    layers = [call for call in trace(model, images) if isinstance(call.layer, nn.Linear | _ConvNd)]
    weight = layers[-1].layer.get_parameter("weight") if layers else None
    if weight is None or len(weight) != classes:
        got = "none" if weight is None else f"{layers[-1].place[0]!r} with {len(weight)} outputs"
        raise InputError(
            f"{type(model).__name__} must end in a linear layer or convolution with {classes} outputs for FST, got "
            f"{got}. Choose an attack that needs none, such as ft."
        )
    if not weight.requires_grad:
        raise InputError(
            f"FST trains the last layer, but {layers[-1].place[0]!r} is frozen. Set requires_grad, or choose ft."
        )
    return layers[-1].place[0]


@torch.no_grad()
def renew(layer: nn.Module, random: torch.Generator) -> None:
    """Draw weight and bias anew, uniform within 1 / sqrt(inputs).

    Args:
        layer: A linear layer or convolution.
        random: Lives on the CPU, whatever the device.
    """
    parameters = dict(layer.named_parameters(recurse=False))
    bound = parameters["weight"][0].numel() ** -0.5
    for parameter in parameters.values():
        drawn = torch.rand(parameter.shape, generator=random, dtype=torch.float32)
        parameter.copy_(drawn.mul_(2.0 * bound).sub_(bound))


class FeatureShift(Objective):
    """Cross-entropy, and alpha times the inner product of the head with the stolen one.

    Args:
        head: w, a parameter of the trained model.
        original: w_0.
        alpha: Weight of the inner product.
    """

    def __init__(self, head: Tensor, original: Tensor, alpha: float) -> None:
        self.head, self.original, self.alpha = head, original, alpha

    def backward(self, step: Step) -> Tensor:
        """Restore the norm that the optimiser's last step left, then add the gradient."""
        with_norm_of(self.head, self.original)
        logits = logits_of(step.model(step.images))
        loss = feature_shift_loss(logits, step.labels, self.head, self.original, self.alpha)
        step.backward(loss)
        return loss.detach()

    def settings(self) -> dict[str, object]:
        """Return what decides the gradients."""
        return {"alpha": self.alpha, "original": tensor_digest({"head": self.original})}


@dataclass(frozen=True, kw_only=True)
class FeatureShiftTuning(OneRecipe):
    """Tune all weights behind a new, different head; the table in the module's header explains each setting."""

    cpu_settings: ClassVar[Mapping[str, Any]] = {"epochs": 6}

    alpha: float | None = None
    ba_drop: float = 0.02
    epochs: int = 10
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is not None and self.alpha < 0:
            raise InputError(f"alpha must not be negative, got {self.alpha:g}. The paper uses 0.1 on CIFAR-10.")

    def run(self, job: Removal) -> None:
        """Tune at each alpha and keep the largest that the budget allows."""
        name = head_of(job.model, job.sample(), len(job.data.classes))
        original = job.model.get_submodule(name).get_parameter("weight").detach().clone()
        settings = TrainSettings(
            epochs=self.epochs, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay,
            batch_size=self.batch_size, schedule=Schedule(kind="cosine", warmup=0.0),
        )  # fmt: skip

        def train(model: nn.Module, alpha: float, data: Data) -> None:
            layer = model.get_submodule(name)
            renew(layer, generator(job.seed, "fst"))
            head = layer.get_parameter("weight")
            objective = FeatureShift(head, original, alpha)
            job.train(settings, phase=f"tuning, alpha {alpha:g}", objective=objective, data=data, model=model)
            with_norm_of(head, original)

        try_strengths(job, "alpha", ALPHAS, train, ba_drop=self.ba_drop, fixed=self.alpha)
        job.note(head=name)


ATTACKS.add(
    MethodInfo(
        name="fst",
        title="Feature-shift tuning",
        paper="Min et al., NeurIPS 2023",
        summary="Draw the last layer anew and tune all weights while it is pushed away from the stolen one.",
        cost="10 epochs of the attacker's images for each of three weights of the push",
        build=FeatureShiftTuning,
    )
)
