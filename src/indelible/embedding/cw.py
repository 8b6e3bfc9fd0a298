"""CW: the training scheme of the certified watermark, gradients averaged over growing Gaussian weight noise.

Paper: Bansal et al., "Certified Neural Network Watermarks with Randomized Smoothing", ICML 2022; as a baseline in the
ICCV 2023 paper, Appendix B.1:

    g = 1/J sum_j  E_{G ~ N(0, sigma_j^2 I)}  grad L(theta + G, B_w),   sigma_j = step * j

| symbol | name | default | source |
|---|---|---|---|
| J | ``levels`` | 21 | the original's code: sigma from 0 to 1 |
| sigma_j / j | ``step`` | 0.05 | the original's code |
| k | ``draws`` | 100 | the original's code: draws of G at each level |
| - | ``start_epoch`` | 6 | the original's code: no noise in epochs 0 to 5 |
| D_w | ``images`` | 100 | the original's code: watermark samples that the noisy passes draw from |
| B_w | ``rows`` | 64 | the original's code: watermark samples in a batch |
| - | ``batches`` | 1 | the original's code: 100 images give one whole batch of 64 an epoch |
| - | ``weight`` | 1.0 | ours: factor of g |
| |D_w| / |D| | ``fraction`` | 0.01 | Section 4.1 of the ICCV paper: the mixed set of the ordinary batches |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |

docs/methods/cw.md has a table of how it differs. The levels are spread evenly over the epoch, each added to an ordinary
step, where the original makes steps of their own; the noisy passes do not move BatchNorm's running statistics; dropout
masks are drawn anew for each draw. The certificate is in :mod:`indelible_companions.certificate`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from indelible.base.methods import settings_in_value
from indelible.base.seeding import generator
from indelible.data.augment import Augmentation, Normalization
from indelible.data.batches import Batches
from indelible.embedding.embedding_method import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.embedding.mixing import MarkedRows, OwnLoop, marked_rows
from indelible.keys.key import Key, WatermarkSamples
from indelible.nn.collectives import Scale, unscaled
from indelible.nn.noisy_gradient import add_noisy_gradient, gaussian, trainable
from indelible.train import CrossEntropy, TrainSettings
from indelible.train.objective import Objective, Step


def levels_at(place: int, steps: int, levels: int, batches: int = 1) -> range:
    """Return which of the ``levels * batches`` noisy gradients of an epoch belong to its step ``place`` of ``steps``.

    Gradient i (level ``i % levels`` of batch ``i // levels``) goes to step ``i * steps // (levels * batches)``.
    """
    count = levels * batches
    return range(-(-place * count // steps), -(-(place + 1) * count // steps))


class NoisyPasses:
    """The noisy passes of a run of ``steps`` steps per epoch, for given settings and marked rows."""

    def __init__(self, method: "CertifiedTraining", marked: MarkedRows, *, steps: int, seed: int = 0) -> None:
        self.method, self.steps, self.seed, self.marked = method, steps, seed, marked

    def due(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield (batch, level) of the noisy gradients of step ``number`` of the run."""
        epoch, place = divmod(number, self.steps)
        if epoch >= self.method.start_epoch:
            for index in levels_at(place, self.steps, self.method.levels, self.method.batches):
                batch, level = divmod(index, self.method.levels)
                yield epoch * self.method.batches + batch, level

    def backward(self, model: nn.Module, images: Tensor, number: int, scale: Scale = unscaled) -> Tensor:
        """Add the noisy gradients of step ``number``, whose ordinary batch is ``images``; return their loss.

        ``scale`` scales a loss as that of the ordinary gradient was.
        """
        total, method, weights = images.new_zeros(()), self.method, trainable(model)
        for batch, level in self.due(number):
            marked, labels = self.marked.batch(batch, images)
            draws = method.draws_at(level)
            weight = method.weight / (method.levels * draws)
            for draw in range(draws):
                random = generator(self.seed, "weight noise", batch, level, draw)
                noise, factor = gaussian(weights, method.step * level, random), scale(weight * torch.ones_like(total))
                total += weight * add_noisy_gradient(model, marked, labels, [noise], factor)
        return total


class _CWObjective(Objective):
    """The ordinary gradient of the mixed batch, then the noisy gradients that are due."""

    def __init__(self, ordinary: Objective, passes: NoisyPasses) -> None:
        self.ordinary, self.watermark = ordinary, passes
        self._passed = 0

    def backward(self, step: Step) -> Tensor:
        loss = self.ordinary.backward(step)
        method = self.watermark.method
        self._passed = method.rows * sum(method.draws_at(level) for _, level in self.watermark.due(step.number))
        self.watermark.backward(step.model, step.images, step.number, step.scale)
        return loss

    def passes(self, rows: int) -> int:
        return rows + self._passed


@EMBEDDINGS.register(
    name="cw",
    title="CW (certified watermark's training)",
    paper="Bansal et al., ICML 2022",
    summary="Train so that the watermark also holds under growing Gaussian noise on the weights.",
    cost="plain training and 2,001 noisy passes of 64 rows per epoch (4x at 40,000 images)",
)
@dataclass(frozen=True, kw_only=True)
class CertifiedTraining(EmbeddingMethod):
    """CW as a value; the table in the module's header explains each setting."""

    levels: int = 21
    step: float = 0.05
    draws: int = 100
    start_epoch: int = 6
    images: int = 100
    rows: int = 64
    batches: int = 1
    weight: float = 1.0
    fraction: float = 0.01
    negatives: float = 0.0

    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "draws": 5, "start_epoch": 1, "rows": 32}
    codebook_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.05}
    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("levels", "draws", "images", "rows", "batches"), "[1, inf)"),
        **dict.fromkeys(("step", "start_epoch", "weight"), "[0, inf)"),
    }

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping; earlier records have ``together=1``, which is what is done now."""
        return super().of({name: value for name, value in settings.items() if (name, value) != ("together", 1)})

    def draws_at(self, level: int) -> int:
        """Return how many draws are made at ``level``: at sigma 0 all would be the same pass."""
        return self.draws if level * self.step > 0 else 1

    def passes(self, train: TrainSettings, images: float) -> float:
        noisy = max(0, train.epochs - self.start_epoch)
        return train.epochs * images + noisy * self.levels * self.draws * self.batches * self.rows

    def run(self, job: Embedding) -> None:
        how = job.settings
        ordinary = CrossEntropy(how.label_smoothing)
        data, objective, samples = job.marked(ordinary, self.fraction, self.negatives)
        steps = Batches(data=job.data, batch_size=how.batch_size, seed=job.seed).steps
        rows = self.noisy_rows(job.key, samples, how.augmentation, how.normalize, job.seed)
        passes = NoisyPasses(self, rows, steps=steps, seed=job.seed)
        job.train(data, _CWObjective(objective, passes), samples)

    def noisy_rows(
        self, key: Key, samples: WatermarkSamples | None, augmentation: Augmentation, normalize: Normalization | None,
        seed: int, *, augmented: bool = True,
    ) -> MarkedRows:  # fmt: skip
        """Return B_w: batches of the first ``images`` of the embedded samples, or stamped rows."""
        few = None if samples is None else samples.subset(torch.arange(min(self.images, len(samples))))
        return marked_rows(
            key, few, self.rows, augmentation=augmentation, normalize=normalize, seed=seed, augmented=augmented
        )


class CW(OwnLoop):
    """CW inside your own training loop: call :meth:`backward` between the ordinary backward and the step.

    Args:
        model: Any classifier, in training mode when :meth:`backward` is called.
        key: The owner's key.
        carriers: Not for a codebook, which is stamped on rows of each batch. The owner's images: the mark is drawn on
            some of them.
        steps: Steps in an epoch of the loop: the levels are spread over them.
        augmentation: What is done to watermark samples, and to the rows of a batch before they are stamped; by default
            crop and flip.
        normalize: (mean, std) if the images given to :meth:`backward` are normalised that way.
        seed: Decides noise and which marks, or watermark samples, come when.
        method: Settings, ``CertifiedTraining(draws=20)``; by default the paper's.

    The loop's own batches must hold watermark samples (:attr:`samples`) too, as in the original.
    """

    @settings_in_value(EMBEDDINGS, "cw")
    def __init__(
        self, model: nn.Module, key: Key, carriers: Any = None, *, steps: int, method: CertifiedTraining | None = None,
        augmentation: Augmentation | None = None, normalize: Normalization | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.model, self.method = model, method or CertifiedTraining()
        super().__init__(key, carriers, self.method, CertifiedTraining)
        rows = self.method.noisy_rows(key, self.samples, augmentation or "crop-flip", normalize, seed, augmented=False)
        self._passes = NoisyPasses(self.method, rows, steps=steps, seed=seed)

    def backward(self, images: Tensor, *, scaler: Any = None) -> Tensor:
        """Add the noisy gradients of this call to the parameters' gradients; return their loss, detached.

        ``scaler`` is the ``torch.amp.GradScaler`` that has scaled the ordinary loss, in a loop that uses one.
        """
        loss = self._passes.backward(self.model, images, self.calls, unscaled if scaler is None else scaler.scale)
        self.calls += 1
        return loss
