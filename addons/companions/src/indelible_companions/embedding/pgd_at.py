"""PGD-AT: adversarial training on the watermarked set.

Paper: Madry, Makelov, Schmidt, Tsipras, Vladu, "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR
2018, Equation (2.1); a row of the ICCV 2023 paper's comparison with adversarial training (appendix):

    min_theta  E_(x, y) in D_c + D_w  max_{|x' - x| <= eps}  L(theta, x', y)

| symbol | name | default | source |
|---|---|---|---|
| eps | ``eps`` | 8/255 | the original, CIFAR-10 |
| - | ``step`` | 2/255 | the original, CIFAR-10 |
| - | ``steps`` | 10 | the setting of most later work; the original's code takes 10, its text 7 |
| - | ``random_start`` | True | the original: uniform in the ball |
| - | ``mode`` | ``"train"`` | the original's code attacks the network as it is trained: BatchNorm by the batch |
| |D_w| / |D| | ``fraction`` | 0.01 | as Vanilla |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |

Images live in [0, 1], whatever ``normalize`` makes of them for the network: eps, step and the clipping count there.
Watermark samples are attacked like all others. Passes of the attack leave BatchNorm's running statistics alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.registry import MethodInfo
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, denormalise, normalise
from indelible.embedding.embedding_method import Embedding, EmbeddingMethod
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import MODES, Mode, attacking
from indelible.train import TrainSettings
from indelible.train.objective import Objective, Step
from indelible_companions.embedding.input_perturbation import ball_noise, sign_ascent


class _PGDObjective(Objective):
    """The cross-entropy at the worst inputs that the attack finds."""

    def __init__(self, method: "PGDTraining", normalize: Normalization | None, seed: int, smoothing: float) -> None:
        self.method, self.normalize, self.seed, self.smoothing = method, normalize, seed, smoothing

    def loss(self, step: Step) -> Tensor:
        method = self.method

        def at(pixels: Tensor) -> Tensor:
            logits = logits_of(step.model(normalise(pixels, self.normalize)))
            return F.cross_entropy(logits, step.labels, label_smoothing=self.smoothing)

        clean = denormalise(step.images, self.normalize).clamp(0.0, 1.0)
        start = clean
        if method.random_start:
            start = clean + ball_noise(clean, method.eps, generator(self.seed, "pgd", step.number), step.share)
        with attacking(step.model, method.mode):
            worst = sign_ascent(
                clean, start, lambda pixels: step.scale(at(pixels)),
                eps=method.eps, step=method.step, steps=method.steps,
            )  # fmt: skip
        return at(worst)

    def passes(self, rows: int) -> int:
        return rows * (self.method.steps + 1)


@dataclass(frozen=True, kw_only=True)
class PGDTraining(EmbeddingMethod):
    """PGD-AT as a value; the table in the module's header explains each setting."""

    eps: float = 8 / 255
    step: float = 2 / 255
    steps: int = 10
    random_start: bool = True
    mode: Mode = "train"
    fraction: float = 0.01
    negatives: float = 0.0

    # Four passes per step in place of eleven; three larger steps reach the edge of the ball too.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "steps": 3, "step": 4 / 255}
    codebook_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.05}

    def __post_init__(self) -> None:
        check_ball(self.eps, self.step, self.steps, self.mode)

    def passes(self, train: TrainSettings, images: float) -> float:
        return train.epochs * images * (1 + self.steps)

    def run(self, job: Embedding) -> None:
        how = job.settings
        objective = _PGDObjective(self, how.normalize, job.seed, how.label_smoothing)
        job.train(*job.marked(objective, self.fraction, self.negatives))


INFO = MethodInfo(
    name="pgd-at",
    title="PGD-AT (adversarial training)",
    paper="Madry et al., ICLR 2018",
    summary="Train on the watermarked set at the worst inputs near each image.",
    cost="11x plain training (ten passes of the attack, one to train)",
    build=PGDTraining,
)


def check_ball(eps: float, step: float, steps: int, mode: str) -> None:
    """Refuse a ball or steps that make no attack."""
    if not 0.0 < eps <= 1.0 or step <= 0.0 or steps < 1:
        raise InputError(
            f"eps is a share of a pixel's range in (0, 1], step and steps are positive, got {eps:g}, {step:g} "
            f"and {steps}. The paper's eps is 8/255 = 0.0314."
        )
    if mode not in MODES:
        raise UnknownNameError("mode of the attack", mode, MODES)
