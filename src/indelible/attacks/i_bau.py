"""I-BAU: find one change of the image that upsets the network on all images, and unlearn it by implicit gradients.

Paper: Zeng, Chen, Park, Mao, Jin, Jia, "Adversarial Unlearning of Backdoors via Implicit Hypergradient", ICLR 2022,
Sections 3 and 4, Algorithm 1; settings of its authors' code.

    min_theta  H(d*(theta), theta),   d* = argmin_d  h(d, theta) = -CE(f(x + d), y) + c ||d||^2
    gradient:  dH/dtheta - eta (d^2 h / dtheta dd)^T v_K
               v_0 = 0,   v_k = v_(k-1) - eta (d^2 h / dd^2) v_(k-1) + dH/dd

H is the cross-entropy of a batch, a small share of whose images carries d. The v_k converge to the inverse of
eta d^2 h / dd^2 times dH/dd, so that the gradient is that of the implicit function d*(theta).

| symbol | name | default | source |
|---|---|---|---|
| K | ``steps`` | 5 | the authors' code |
| eta | ``inner_lr`` | 0.1 | the authors' code, step of the fixed-point map |
| c | ``penalty`` | 0.001 | the authors' code |

All settings and how it differs: docs/attacks/i-bau.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import try_rounds
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, denormalise, normalise, to_float
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import attacking
from indelible.train import Objective, Schedule, Step


def inner_loss(logits: Tensor, labels: Tensor, change: Tensor, penalty: float) -> Tensor:
    """Return h = -CE + c ||d||^2, with d the ``change``, c the ``penalty`` and logits (N, K) of the changed images."""
    return -F.cross_entropy(logits, labels) + penalty * change.square().sum()


def hypergradient(
    outer: Callable[[Tensor], Tensor], inner: Callable[[Tensor], Tensor], lower: Tensor, upper: Sequence[Tensor], *,
    lr: float, steps: int,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Return H and its gradients along the implicit function d*(theta), by K = ``steps`` fixed-point iterations.

    ``outer`` and ``inner`` are H and h as functions of d, ``lower`` is near d*, ``upper`` is theta, ``lr`` is eta.
    """
    lower = lower.detach().requires_grad_()
    value = outer(lower)
    along, *direct = torch.autograd.grad(value, [lower, *upper], allow_unused=True, materialize_grads=True)
    (slope,) = torch.autograd.grad(inner(lower), [lower], create_graph=True)
    product = torch.zeros_like(lower)
    for _ in range(steps):
        (bent,) = torch.autograd.grad(slope, [lower], product, retain_graph=True)
        product = product - lr * bent + along
    mixed = torch.autograd.grad(slope, upper, product, allow_unused=True, materialize_grads=True)
    return value.detach(), [one - lr * other for one, other in zip(direct, mixed, strict=True)]


class HypergradientUnlearning(Objective):
    """The implicit gradient of the loss on images of which a few carry the change d, (1, C, H, W), in pixels."""

    def __init__(
        self, change: Tensor, method: "ImplicitUnlearning", normalize: Normalization | None, seed: int
    ) -> None:
        self.change, self.method, self.normalize, self.seed = change, method, normalize, seed

    def backward(self, step: Step) -> Tensor:
        """Leave the implicit gradient in the parameters."""
        method, pixels, labels = self.method, denormalise(step.images, self.normalize), step.labels
        weights = [weight for weight in step.model.parameters() if weight.requires_grad]
        carried = self._carried(step).to(pixels)

        def answers(images: Tensor) -> Tensor:
            return logits_of(step.model(normalise(images, self.normalize)))

        def outer(change: Tensor) -> Tensor:
            return step.scale(F.cross_entropy(answers(pixels + carried * change), labels))

        def inner(change: Tensor) -> Tensor:
            return inner_loss(answers(pixels + change), labels, change, method.penalty)

        # Fused attention has no second derivative.
        with attacking(step.model, "eval"), sdpa_kernel(SDPBackend.MATH):
            loss, gradients = hypergradient(
                outer, inner, self.change.to(pixels), weights, lr=method.inner_lr, steps=method.steps
            )
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        return loss

    def _carried(self, step: Step) -> Tensor:
        rows = len(step.labels)
        chosen = torch.randperm(rows, generator=generator(self.seed, "i-bau", step.number))
        carried = torch.zeros(rows, 1, 1, 1)
        carried[chosen[: max(1, int(self.method.share * rows))]] = 1.0
        return carried

    def passes(self, rows: int) -> int:
        """Return the images passed forward: for H and for h."""
        return 2 * rows


@ATTACKS.register(
    name="i-bau",
    title="Adversarial unlearning by implicit gradients",
    paper="Zeng et al., ICLR 2022",
    summary="Find one change of the image that upsets the network on all images, and unlearn it, in rounds.",
    cost="20 epochs of the attacker's images, and five products with second derivatives in every step",
)
@dataclass(frozen=True, kw_only=True)
class ImplicitUnlearning(RemovalAttack):
    """Find a universal change of the image and unlearn it, in rounds; docs/attacks/i-bau.md explains each setting."""

    protocols = ("sound",)
    ranges = {"rounds": "[1, inf)", "steps": "[1, inf)", "share": "(0, 1]"}

    rounds: int = 5
    steps: int = 5
    inner_lr: float = 0.1
    penalty: float = 0.001
    search_lr: float = 10.0
    share: float = 0.01
    lr: float = 0.001
    batch_size: int = 100
    ba_drop: float = 0.02

    def passes(self, images: float, classes: int) -> float:
        return images * 4 * self.rounds

    def curve_models(self) -> int:
        return self.rounds

    def run(self, job: Removal) -> None:
        """In every round find the change, then unlearn it; keep as many rounds as the budget allows."""
        settings = self.training(
            epochs=1, optimizer="adamw", weight_decay=0.0, schedule=Schedule(), augmentation="none"
        )

        def train(model: nn.Module, number: int, data: Data) -> None:
            objective = HypergradientUnlearning(self._search(job, model, data), self, job.normalize, job.seed)
            job.train(settings, phase=f"round {number}", objective=objective, data=data, model=model)

        try_rounds(job, self.rounds, train, ba_drop=self.ba_drop)

    def _search(self, job: Removal, model: nn.Module, data: Data) -> Tensor:
        """Return the change d (1, C, H, W) that turns the model's answers away from those it gives now."""
        change = torch.zeros(1, *data.shape, device=job.place)
        with attacking(model, "eval"):
            for images, _ in data.iterate(torch.arange(len(data)), self.batch_size, job.place):
                pixels = to_float(images)
                with torch.no_grad():
                    own = logits_of(model(normalise(pixels, job.normalize))).argmax(1)
                change.requires_grad_()
                logits = logits_of(model(normalise(pixels + change, job.normalize)))
                (slope,) = torch.autograd.grad(inner_loss(logits, own, change, self.penalty), [change])
                change = (change - self.search_lr * slope).detach()
        job.count(2 * len(data))
        return change
