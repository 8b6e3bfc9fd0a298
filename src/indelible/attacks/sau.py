"""SAU: unlearn the adversarial examples that fool the stolen model and the model under training in the same way.

Paper: Wei, Zhang, Zha, Wu, "Shared Adversarial Unlearning: Backdoor Mitigation by Unlearning Shared Adversarial
Examples", NeurIPS 2023, Section 4, Algorithm 1; settings of its first author's code.

    search:   e = argmin_{|e| <= eps}  -lambda_adv * (CE(f(x + e), y) + CE(f_0(x + e), y)) / 2
                                       + lambda_share * JS(p(x + e), p_0(x + e))
    unlearn:  min_theta  CE(f(x), y) + weight * mean of [k != y] * -log(1 - p_k(x + e)),   k = argmax f_0(x + e)

f_0 is the stolen model, p and p_0 the two softmax outputs, JS the Jensen-Shannon divergence.

| symbol | name | default | source |
|---|---|---|---|
| eps | ``eps`` | 0.2 | the author's code: largest change of a pixel in [0, 1] |
| lambda_adv, lambda_share | ``adversarial``, ``shared`` | 0.01, 1 | the author's code |
| weight | ``weight`` | 1 | the author's code |

Which images count in each loss, all settings and how it differs: docs/attacks/sau.md.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import try_rounds
from indelible.data.augment import Normalization, denormalise, normalise
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import attacking
from indelible.train import Objective, Schedule, Step

Answers = Callable[[Tensor], Tensor]


def jensen_shannon(logits: Tensor, others: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence (N,) of the softmax of two sets of logits (N, K), in nats."""
    one, two = (F.log_softmax(part, 1) for part in (logits, others))
    middle = torch.logaddexp(one, two) - torch.log(torch.tensor(2.0)).to(one)
    return 0.5 * sum(((part.exp() * (part - middle)).sum(1) for part in (one, two)), one.new_zeros(len(one)))


def search_loss(
    logits: Tensor, stolen: Tensor, labels: Tensor, own: Tensor, first: Tensor, *, adversarial: float, shared: float
) -> Tensor:
    """Return what the search for shared adversarial examples minimises, from logits (N, K) of both models on them.

    ``own`` and ``first`` (N,) are the answers of the trained and the stolen model to the unchanged images.
    """
    fooled, fooled_first = logits.argmax(1) != own, stolen.argmax(1) != first
    same = fooled & fooled_first & (logits.argmax(1) == stolen.argmax(1))
    missed = F.cross_entropy(logits, labels, reduction="none") * ~fooled
    missed = missed + F.cross_entropy(stolen, labels, reduction="none") * ~fooled_first
    apart = jensen_shannon(logits, stolen) * ~same
    return (shared * apart - adversarial * missed / 2.0).mean()


def unlearning_loss(logits: Tensor, stolen: Tensor, labels: Tensor, first: Tensor) -> Tensor:
    """Return the mean of -log(1 - p_k) over the images that fool the stolen model into class k; zero for the others.

    ``first`` (N,) is what the stolen model answers to the unchanged images.
    """
    wrong = stolen.argmax(1)
    fools = (wrong != labels) & (wrong != first)
    without = logits.masked_fill(F.one_hot(wrong, logits.shape[1]).bool(), -torch.inf)
    return ((logits.logsumexp(1) - without.logsumexp(1)) * fools).mean()


class SharedUnlearning(Objective):
    """Cross-entropy, and the loss on what fools the stolen model and this one alike."""

    def __init__(
        self, stolen: nn.Module, method: "SharedAdversarialUnlearning", normalize: Normalization | None
    ) -> None:
        self.stolen, self.method, self.normalize = stolen.eval().requires_grad_(False), method, normalize

    def loss(self, step: Step) -> Tensor:
        """Search, then return the unlearning loss."""
        pixels, labels = denormalise(step.images, self.normalize), step.labels
        with attacking(step.model, "eval"):
            answers, stolen = self._answers(step.model), self._answers(self.stolen)
            with torch.no_grad():
                own, first = answers(pixels).argmax(1), stolen(pixels).argmax(1)
            changed = pixels + self._search(answers, stolen, pixels, labels, own, first)
            with torch.no_grad():
                fooled = stolen(changed)
            clean, attacked = answers(torch.cat([pixels, changed])).chunk(2)
        wrong = unlearning_loss(attacked, fooled, labels, first)
        return F.cross_entropy(clean, labels) + self.method.weight * wrong

    def _answers(self, model: nn.Module) -> Answers:
        return lambda images: logits_of(model(normalise(images, self.normalize)))

    def _search(
        self, answers: Answers, stolen: Answers, pixels: Tensor, labels: Tensor, own: Tensor, first: Tensor
    ) -> Tensor:
        method = self.method
        change = torch.full_like(pixels, method.eps)
        for _ in range(method.steps):
            change.requires_grad_()
            loss = search_loss(
                answers(pixels + change), stolen(pixels + change), labels, own, first,
                adversarial=method.adversarial, shared=method.shared,
            )  # fmt: skip
            (slope,) = torch.autograd.grad(loss, [change])
            change = (change.detach() - method.step * slope.sign()).clamp(-method.eps, method.eps)
        return change

    def passes(self, rows: int) -> int:
        """Return the images passed forward by both models: unchanged, in the search, and to unlearn."""
        return rows * (2 + 2 * self.method.steps + 3)


@ATTACKS.register(
    name="sau",
    title="Shared adversarial unlearning",
    paper="Wei et al., NeurIPS 2023",
    summary="Unlearn the adversarial examples that fool the stolen model and the one under training alike.",
    cost="375 epochs of the attacker's images (15 passes in each of 25)",
)
@dataclass(frozen=True, kw_only=True)
class SharedAdversarialUnlearning(RemovalAttack):
    """Unlearn shared adversarial examples, in rounds; docs/attacks/sau.md explains each setting."""

    protocols = ("sound",)
    cpu_settings = {"rounds": 2, "epochs": 1, "steps": 2, "batch_size": 64}
    ranges = {"eps": "(0, 1]", "step": "(0, inf)", "steps": "[1, inf)", "rounds": "[1, inf)"}

    eps: float = 0.2
    step: float = 0.2
    steps: int = 5
    adversarial: float = 0.01
    shared: float = 1.0
    weight: float = 1.0
    rounds: int = 5
    epochs: int = 5
    lr: float = 1e-4
    batch_size: int = 256
    ba_drop: float = 0.02

    def passes(self, images: float, classes: int) -> float:
        return images * self.epochs * self.rounds * (5 + 2 * self.steps)

    def curve_models(self) -> int:
        return self.rounds

    def run(self, job: Removal) -> None:
        """Search and unlearn in every step; keep as many rounds as the budget allows."""
        objective = SharedUnlearning(copy.deepcopy(job.model), self, job.normalize)
        settings = self.training(optimizer="adamw", weight_decay=0.0, schedule=Schedule(), augmentation="none")

        def train(model: nn.Module, number: int, data: Data) -> None:
            job.train(settings, phase=f"round {number}", objective=objective, data=data, model=model)

        try_rounds(job, self.rounds, train, ba_drop=self.ba_drop)
