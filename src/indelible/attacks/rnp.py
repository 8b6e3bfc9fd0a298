"""RNP: reconstructive neuron pruning - unlearn the clean task, see which neurons it cannot be rebuilt from, prune them.

Paper: Li, Lyu, Ma, Koren, Lyu, Li, Jiang, "Reconstructive Neuron Pruning for Backdoor Defense", ICML 2023, Section 3,
Algorithm 1; settings of its authors' code.

    unlearn:  max_theta  CE(f_theta(x), y), until the accuracy is at most ``floor``
    recover:  min_m  alpha * CE(f_{m * theta}(x), y),   m in [0, 1], one for each neuron of the unlearned network
    prune the neurons with m <= threshold in the stolen network: w = 0

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 0.2 | the authors' code |
| threshold | ``threshold`` | by budget | the authors' code tries 0 to 0.9 in steps of 0.05 |

Neurons, all settings and how it differs: docs/attacks/rnp.md.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.anp import THRESHOLDS, prune_by_mask
from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.base.seeding import derive_seed, generator
from indelible.data.augment import normalise
from indelible.data.batches import Batches
from indelible.data.images import Data
from indelible.nn.channel_masks import MaskedNetwork, neurons_of
from indelible.nn.outputs import logits_of
from indelible.train import Objective, Schedule, Step

_CLIP = 20.0
_DROPS = (10, 20)
_CHANCE = 1.2


class Recovery(Objective):
    """alpha times the cross-entropy of the masked, unlearned network, as gradients of the mask."""

    def __init__(self, masked: MaskedNetwork, alpha: float) -> None:
        self.masked, self.alpha = masked, alpha

    def loss(self, step: Step) -> Tensor:
        """Clip what the optimiser's last step left outside [0, 1], then return the loss."""
        with torch.no_grad():
            self.masked.mask.clamp_(0.0, 1.0)
        return self.alpha * F.cross_entropy(logits_of(step.model(step.images)), step.labels)


def ascend(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> Tensor:
    """Take one step up the cross-entropy; return how many images were classified correctly before it."""
    optimizer.zero_grad()
    logits = logits_of(model(images))
    (-F.cross_entropy(logits, labels)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()
    return (logits.argmax(1) == labels).sum()


@ATTACKS.register(
    name="rnp",
    title="Reconstructive neuron pruning",
    paper="Li et al., ICML 2023",
    summary="Unlearn the task on a few images, rebuild it by masks of neurons, and prune what the masks give up.",
    cost="40 epochs of 500 images, and 3 of all to choose",
)
@dataclass(frozen=True, kw_only=True)
class ReconstructiveNeuronPruning(RemovalAttack):
    """Unlearn, recover, prune; docs/attacks/rnp.md explains each setting."""

    protocols = ("sound",)
    strengths = THRESHOLDS
    ranges = {"images": "[2, inf)", "unlearn_epochs": "[1, inf)", "floor": "[0, 1)"}

    images: int = 500
    unlearn_epochs: int = 20
    unlearn_lr: float = 0.01
    floor: float = 0.2
    alpha: float = 0.2
    epochs: int = 20
    lr: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    threshold: float | None = None
    ba_drop: float = 0.02

    def passes(self, images: float, classes: int) -> float:
        return min(images, self.images) * (self.epochs + self.unlearn_epochs)

    def run(self, job: Removal) -> None:
        """Unlearn, train masks, choose the threshold, prune."""
        neurons = neurons_of(job.model, job.sample())
        fitting, held = job.parts()
        few = torch.randperm(len(fitting), generator=generator(job.seed, "rnp"))[: self.images].sort().values
        data = fitting.subset(few)
        masked = MaskedNetwork(self._unlearned(job, data), neurons)
        job.train(
            self.training(weight_decay=0.0, schedule=Schedule()), phase="recovering",
            objective=Recovery(masked, self.alpha), data=data, model=masked,
        )  # fmt: skip
        reference = job.accuracy(job.model, held)
        job.note(accuracy=reference)
        prune_by_mask(
            job, neurons, masked.mask.detach(), given=self.threshold, ba_drop=self.ba_drop, judges=held,
            reference=reference,
        )  # fmt: skip

    def stops_at(self, classes: int) -> float:
        """Return the accuracy at which unlearning stops: ``floor``, but with few classes a fifth more than chance."""
        return max(self.floor, _CHANCE / classes)

    def _unlearned(self, job: Removal, data: Data) -> nn.Module:
        """Return a copy of the stolen model that has forgotten the task; a pure function of model, images and seed."""
        model = copy.deepcopy(job.model).train()
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=self.unlearn_lr, momentum=self.momentum, weight_decay=self.weight_decay)
        batches = Batches(data=data, batch_size=self.batch_size, seed=job.seed, device=job.place)
        floor, right, rows = self.stops_at(len(job.data.classes)), torch.zeros((), device=job.place), 0
        with torch.random.fork_rng(devices=[job.place] if job.place.type == "cuda" else []):
            torch.manual_seed(derive_seed(job.seed, "rnp", "model"))
            for epoch in range(self.unlearn_epochs):
                for group in optimizer.param_groups:
                    group["lr"] = self.unlearn_lr * Schedule.milestones(*_DROPS).factor(epoch, self.unlearn_epochs)
                right, rows = torch.zeros_like(right), 0
                for images, labels in batches.epoch(epoch):
                    right += ascend(model, optimizer, normalise(images, job.normalize), labels)
                    rows += len(labels)
                job.count(rows)
                if float(right) <= floor * rows:
                    break
        job.note(unlearned=float(right) / rows)
        return model
