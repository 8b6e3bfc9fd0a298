"""TRADES: adversarial training that weighs accuracy against stability, on the watermarked set.

Paper: Zhang, Yu, Jiao, Xing, El Ghaoui, Jordan, "Theoretically Principled Trade-off between Robustness and Accuracy",
ICML 2019, Equation (5) and Algorithm 1; a row of the ICCV 2023 paper's comparison with adversarial training (appendix):

    min_theta  E_(x, y) in D_c + D_w  [ L(theta, x, y) + beta * max_{|x' - x| <= eps} KL(p(x) || p(x')) ]

with p the network's probabilities.

| symbol | name | default | source |
|---|---|---|---|
| eps | ``eps`` | 0.031 | the original, CIFAR-10 |
| eta_1 | ``step`` | 0.007 | the original, CIFAR-10 |
| K | ``steps`` | 10 | the original |
| 1 / lambda | ``beta`` | 6 | the original, CIFAR-10: the stronger of its settings |
| - | ``start_noise`` | 0.001 | the original: Gaussian, since the gradient of KL vanishes at x itself |
| - | ``mode`` | ``"eval"`` | the authors' code attacks in evaluation mode: BatchNorm by its running statistics |
| |D_w| / |D| | ``fraction`` | 0.01 | as Vanilla |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |

p(x) is held fixed while the attack searches, and is trained in the outer loss, as in the authors' code. There, too, the
clean and the attacked images are passed one after the other in training mode, so that BatchNorm normalises each by its
own statistics and the running statistics average both. Images live in [0, 1] before ``normalize``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.base.registry import MethodInfo
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, denormalise, normalise
from indelible.embedding.embedding_method import Embedding, EmbeddingMethod
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import Mode, attacking
from indelible.train import TrainSettings
from indelible.train.objective import Objective, Step
from indelible_companions.embedding.input_perturbation import sign_ascent, small_noise
from indelible_companions.embedding.pgd_at import check_ball


def divergence(clean: Tensor, moved: Tensor) -> Tensor:
    """Return KL(p || q) of the probabilities of two batches of logits (N, K), averaged over the batch."""
    return F.kl_div(F.log_softmax(moved, 1), F.log_softmax(clean, 1), reduction="batchmean", log_target=True)


def trades_loss(clean: Tensor, moved: Tensor, labels: Tensor, beta: float, smoothing: float = 0.0) -> Tensor:
    """Return the loss of the images and, weighted by ``beta``, the divergence of the moved images from them."""
    return F.cross_entropy(clean, labels, label_smoothing=smoothing) + beta * divergence(clean, moved)


class _TRADESObjective(Objective):
    """The loss of the images, and how far answers can be moved near them."""

    def __init__(self, method: "TradeOff", normalize: Normalization | None, seed: int, smoothing: float) -> None:
        self.method, self.normalize, self.seed, self.smoothing = method, normalize, seed, smoothing

    def loss(self, step: Step) -> Tensor:
        method = self.method

        def logits(pixels: Tensor) -> Tensor:
            return logits_of(step.model(normalise(pixels, self.normalize)))

        pixels = denormalise(step.images, self.normalize).clamp(0.0, 1.0)
        noise = small_noise(pixels, method.start_noise, generator(self.seed, "trades", step.number), step.share)
        with attacking(step.model, method.mode):
            with torch.no_grad():
                known = logits_of(step.model(step.images))
            worst = sign_ascent(
                pixels, pixels + noise, lambda moved: step.scale(divergence(known, logits(moved))),
                eps=method.eps, step=method.step, steps=method.steps,
            )  # fmt: skip
        clean = logits_of(step.model(step.images))
        return trades_loss(clean, logits(worst), step.labels, method.beta, self.smoothing)

    def passes(self, rows: int) -> int:
        return rows * (self.method.steps + 3)


@dataclass(frozen=True, kw_only=True)
class TradeOff(EmbeddingMethod):
    """TRADES as a value; the table in the module's header explains each setting."""

    eps: float = 0.031
    step: float = 0.007
    steps: int = 10
    beta: float = 6.0
    start_noise: float = 0.001
    mode: Mode = "eval"
    fraction: float = 0.01
    negatives: float = 0.0

    # Six passes per step in place of thirteen; three larger steps reach the edge of the ball too.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "steps": 3, "step": 0.0155}
    codebook_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.05}

    def __post_init__(self) -> None:
        check_ball(self.eps, self.step, self.steps, self.mode)
        if self.beta < 0 or self.start_noise < 0:
            raise InputError(f"beta and start_noise must not be negative, got {self.beta} and {self.start_noise}.")

    def passes(self, train: TrainSettings, images: float) -> float:
        return train.epochs * images * (3 + self.steps)

    def run(self, job: Embedding) -> None:
        how = job.settings
        objective = _TRADESObjective(self, how.normalize, job.seed, how.label_smoothing)
        job.train(*job.marked(objective, self.fraction, self.negatives))


INFO = MethodInfo(
    name="trades",
    title="TRADES (adversarial training)",
    paper="Zhang et al., ICML 2019",
    summary="Train on the watermarked set and keep answers stable near each image.",
    cost="13x plain training (eleven passes of the attack, two to train)",
    build=TradeOff,
)
