"""ANP: adversarial neuron pruning - prune the neurons that a small adversarial change of their weights upsets.

Paper: Wu, Wang, "Adversarial Neuron Pruning Purifies Backdoored Deep Models", NeurIPS 2021, Section 4 and Algorithm 1;
settings of the ICCV 2023 paper, Appendix B.4, and its authors' code.

    min_m  alpha * L(m w, b) + (1 - alpha) * max_{|d|, |e| <= eps} L((m + d) w, (1 + e) b),   m in [0, 1]
    prune the neurons with m <= threshold: w = 0

| symbol | name | ``sound`` | ``paper`` | source |
|---|---|---|---|---|
| eps, alpha | ``eps``, ``alpha`` | 0.4, 0.2 | 0.4, 0.2 | ANP, Section 5.1 |
| steps of the inner maximum | ``steps`` | 1 | 1 | ANP, Section 5.1 |
| threshold | ``threshold`` | by budget | 0.6; 0.5 from 100 classes on | ICCV 2023, Appendices B.4 and C |

Neurons, all settings, the slips that ``paper`` keeps and thresholds below zero: docs/attacks/anp.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import change_at_budget
from indelible.base.seeding import generator
from indelible.data.images import Data
from indelible.nn.channel_masks import MaskedNetwork, Neurons, neurons_of, prune_neurons
from indelible.nn.outputs import logits_of
from indelible.train import Objective, Schedule, Step

THRESHOLDS = tuple(step / 20 for step in range(20))
PAPER_THRESHOLD, PAPER_THRESHOLD_100, MANY_CLASSES = 0.6, 0.5, 100


@ATTACKS.register(
    name="anp",
    title="Adversarial neuron pruning",
    paper="Wu and Wang, NeurIPS 2021",
    summary="Train masks of all neurons against adversarial noise on them, and prune what the masks give up.",
    cost="90 epochs of the attacker's images, most parameters frozen",
)
@dataclass(frozen=True, kw_only=True)
class AdversarialNeuronPruning(RemovalAttack):
    """Prune sensitive neurons; docs/attacks/anp.md explains each setting."""

    cpu_settings = {"epochs": 6, "batch_size": 32}
    strengths = THRESHOLDS
    ranges = {"eps": "[0, inf)", "alpha": "[0, 1]", "steps": "[1, inf)"}

    eps: float = 0.4
    steps: int = 1
    alpha: float = 0.2
    epochs: int = 30
    lr: float = 0.2
    momentum: float = 0.9
    batch_size: int = 128
    threshold: float | None = None
    ba_drop: float = 0.02

    def passes(self, images: float, classes: int) -> float:
        return images * self.epochs * (2 + self.steps)

    def run(self, job: Removal) -> None:
        """Train masks, choose the threshold, prune."""
        fitting, held = job.parts()
        neurons = neurons_of(job.model, job.sample())
        masked = MaskedNetwork(job.model, neurons)
        sound = self.protocol == "sound"
        job.train(
            self.training(weight_decay=0.0, schedule=Schedule()), phase="masks", model=masked,
            objective=NeuronNoise(masked, self, job.seed), data=fitting if sound else job.data,
        )  # fmt: skip
        mask = masked.mask.detach()
        if not sound:
            mask = mask.clamp(0.0, 1.0)
        fixed = self.threshold
        if fixed is None and not sound:
            fixed = PAPER_THRESHOLD_100 if len(job.data.classes) >= MANY_CLASSES else PAPER_THRESHOLD
        prune_by_mask(job, neurons, mask, given=fixed, ba_drop=self.ba_drop, judges=held)


def below_zero(mask: Tensor) -> tuple[float, ...]:
    """Return thresholds that prune one to seven eighths of the neurons below zero, the lowest first.

    The mask (neurons,) is as the last step left it: not clipped, so that neurons at zero still have an order.
    """
    pushed = mask[mask < 0].sort().values
    return tuple(
        sorted({float(pushed[len(pushed) * part // 8 - 1]) for part in range(1, 8) if len(pushed) * part >= 8})
    )


def pruned_at(mask: Tensor, threshold: float) -> Tensor:
    """Return 0 for the neurons whose mask is at most ``threshold``, 1 for the others."""
    return (mask > threshold).to(mask.dtype)


def prune_by_mask(
    job: Removal, neurons: Sequence[Neurons], mask: Tensor, *, given: float | None, ba_drop: float, judges: Data,
    reference: float | None = None,
) -> None:  # fmt: skip
    """Choose a threshold, and prune the neurons whose mask (neurons,) is at most that."""
    chosen = change_at_budget(
        job, lambda model, threshold: prune_neurons(model, neurons, pruned_at(mask, threshold)), name="threshold",
        values=(*below_zero(mask), *THRESHOLDS), given=given, ba_drop=ba_drop, judges=judges, reference=reference,
    )  # fmt: skip
    job.note(threshold=chosen, pruned=int((mask <= chosen).sum()), neurons=len(mask))


class NeuronNoise(Objective):
    """alpha * L(mask) + (1 - alpha) * L(mask and the worst noise), as gradients of the mask."""

    def __init__(self, masked: MaskedNetwork, method: AdversarialNeuronPruning, seed: int) -> None:
        self.masked, self.method, self.seed = masked, method, seed

    def loss(self, step: Step) -> Tensor:
        """Find the noise, then return the loss."""
        method, mask = self.method, self.masked.mask
        with torch.no_grad():
            mask.clamp_(0.0, 1.0)  # what the optimiser's last step left outside
        robust = mask.new_zeros(())
        if method.eps > 0:
            noise = self._noise(step)
            robust = F.cross_entropy(logits_of(step.model(step.images, noise)), step.labels)
        natural = F.cross_entropy(logits_of(step.model(step.images)), step.labels)
        return method.alpha * natural + (1.0 - method.alpha) * robust

    def _noise(self, step: Step) -> Tensor:
        method, mask = self.method, self.masked.mask
        random = generator(self.seed, "anp", step.number)
        noise = (torch.rand((2, len(mask)), generator=random) * 2.0 - 1.0).to(mask) * method.eps
        for _ in range(method.steps):
            noise.requires_grad_()
            loss = F.cross_entropy(logits_of(step.model(step.images, noise)), step.labels)
            (gradient,) = torch.autograd.grad(loss, noise)
            noise = (noise + method.eps / method.steps * gradient.sign()).detach()
            if method.protocol == "sound":
                noise = noise.clamp(-method.eps, method.eps)
        return noise

    def passes(self, rows: int) -> int:
        """Return the images passed forward: to find the noise, with it, and without it."""
        return rows * (self.method.steps + 2 if self.method.eps > 0 else 1)
