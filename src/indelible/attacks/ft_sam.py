"""FT-SAM: fine-tuning that steps by the gradient at the worst weights nearby, which shrinks large neurons.

Paper: Zhu, Wei, Shen, Fan, Wu, "Enhancing Fine-Tuning Based Backdoor Defense with Sharpness-Aware Minimization", ICCV
2023, Section 4; the perturbation is that of adaptive SAM (Kwon et al., ICML 2021), T = diag(|w|):

    min_w  max_{||T^-1 e|| <= rho}  L(w + e)        e = rho * T^2 g / ||T g||,   g: gradient of L at w

| symbol | name | default | source |
|---|---|---|---|
| rho | ``rho`` | by budget: 0.5, 2 or 8 | the authors' configurations: 2 on CIFAR-10, 8 on GTSRB and Tiny ImageNet |

All settings and how it differs: docs/attacks/ft-sam.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.attacks.strengths import TrainedStrength
from indelible.data.images import Data
from indelible.nn.perturbation import perturbed, same_randomness
from indelible.nn.statistics import untracked
from indelible.train import CrossEntropy, Schedule, Step

RHOS = (0.5, 2.0, 8.0)


@torch.no_grad()
def adaptive_delta(weights: Sequence[Tensor], gradients: Sequence[Tensor], rho: float) -> list[Tensor]:
    """Return e = rho * w^2 g / || |w| g || for each weight; zero where all gradients are zero."""
    scaled = [weight.abs() * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in scaled]))
    size = torch.where(norm > 0, rho / norm, torch.zeros_like(norm))
    return [weight.abs() * part * size for weight, part in zip(weights, scaled, strict=True)]


class SharpnessAware(CrossEntropy):
    """The gradient of the cross-entropy at the worst weights within rho."""

    def __init__(self, rho: float, label_smoothing: float) -> None:
        super().__init__(label_smoothing)
        self.rho = rho

    def backward(self, step: Step) -> Tensor:
        """Find the worst weights, then add the gradient there."""
        weights = [weight for weight in step.model.parameters() if weight.requires_grad]
        with same_randomness(step.model) as rewind:
            loss = self.loss(step)
            gradients = torch.autograd.grad(step.scale(loss), weights, materialize_grads=True)
            rewind()
            with perturbed(weights, adaptive_delta(weights, gradients, self.rho)), untracked(step.model):
                step.backward(self.loss(step))
        return loss.detach()

    def passes(self, rows: int) -> int:
        """Return the images passed forward: at the weights and at the worst ones."""
        return 2 * rows


@ATTACKS.register(
    name="ft-sam",
    title="Fine-tuning with sharpness-aware minimisation",
    paper="Zhu et al., ICCV 2023",
    summary="Fine-tune by the gradient at the worst weights nearby, each perturbed in proportion to its size.",
    cost="50 epochs of the attacker's images for each of three radii",
)
@dataclass(frozen=True, kw_only=True)
class SharpnessAwareFineTuning(TrainedStrength):
    """Fine-tune with adaptive SAM; docs/attacks/ft-sam.md explains each setting."""

    strength = "rho"
    strengths = RHOS
    cpu_settings = {"epochs": 3}
    ranges = {"rho": "(0, inf)"}

    rho: float | None = None
    epochs: int = 25
    lr: float = 0.01
    label_smoothing: float = 0.1

    def passes(self, images: float, classes: int) -> float:
        return 2 * super().passes(images, classes)

    def train(self, job: Removal, model: nn.Module, value: float, data: Data) -> None:
        """Fine-tune within the radius ``value``."""
        settings = self.training(schedule=Schedule(kind="cosine", warmup=0.0))
        objective = SharpnessAware(value, self.label_smoothing)
        job.train(settings, phase=f"fine-tuning, rho {value:g}", objective=objective, data=data, model=model)
