"""BatchNorm: mean and variance of each channel, for clean and for watermark samples, and how far they lie apart.

Paper: Gan et al., ICCV 2023, Figure 2 and Section 3.3: the reason for clean-sample BatchNorm. Statistics are those that
a layer would come to run with: estimated on clean images alone, then on watermark samples alone, all layers at once.

| name | default | source |
|---|---|---|
| ``layer`` | the 9th BatchNorm, or the last of a network with fewer | Section 3.3: the 9th layer of ResNet-18 |
| ``images`` | 1000 | ours: clean test images, and as many watermark samples |

Distances of a layer, over its channels c (clean c, watermark w):

    mean shift      sqrt(mean_c ((mu_w - mu_c)^2 / var_c))          in standard deviations of the clean channel
    variance ratio  exp(mean_c |log(var_w / var_c)|)                1 where both are alike
    distance        sqrt(sum_c ((mu_w - mu_c)^2 + (sd_w - sd_c)^2) / sum_c var_c)

The last is the 2-Wasserstein distance of two normal distributions with independent channels, relative to the spread of
the clean one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from indelible.analyze.analysis import Analysis
from indelible.analyze.marked_model import MarkedModel
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.nn.layers import batch_norms
from indelible.nn.statistics import estimate_statistics

_SMALLEST = 1e-12  # a channel that never varies has no logarithm


@dataclass(frozen=True, kw_only=True)
class BatchNormSettings(Method):
    """What to compare; the table in the module's header explains each setting."""

    layer: int = 0  # number of the BatchNorm layer from 1, in order of definition; 0 for the default
    images: int = 1000  # clean images, and watermark samples
    seed: int = 0  # decides which


@dataclass(frozen=True, kw_only=True)
class LayerShift:
    """How far clean and watermark statistics of one layer lie apart; the formulas are in the module's header."""

    name: str
    channels: int
    mean_shift: float
    variance_ratio: float
    distance: float


@dataclass(frozen=True, kw_only=True)
class Channels:
    """BatchNorm statistics of one model: of each channel of one layer, and how far all layers lie apart."""

    label: str  # the model
    layer: str  # name of the layer whose channels are shown
    number: int  # its number, from 1
    clean_mean: tuple[float, ...]
    clean_variance: tuple[float, ...]
    marked_mean: tuple[float, ...]
    marked_variance: tuple[float, ...]
    layers: tuple[LayerShift, ...]

    @property
    def shown(self) -> LayerShift:
        """The distance in the layer whose channels are shown."""
        return self.layers[self.number - 1]


@dataclass(frozen=True, kw_only=True)
class Batchnorm(Analysis):
    """BatchNorm statistics of clean and watermark samples in some models."""

    figure: ClassVar[str] = "batchnorm"
    settings: BatchNormSettings
    models: tuple[Channels, ...]


def shift_of(name: str, clean: tuple[Tensor, Tensor], marked: tuple[Tensor, Tensor]) -> LayerShift:
    """Return how far two (mean, variance) pairs of one layer lie apart."""
    (mean, variance), (other_mean, other_variance) = clean, marked
    safe, other = variance.clamp(min=_SMALLEST), other_variance.clamp(min=_SMALLEST)
    moved = (other_mean - mean) ** 2
    spread = (other_variance.sqrt() - variance.sqrt()) ** 2
    return LayerShift(
        name=name, channels=len(mean), mean_shift=float((moved / safe).mean().sqrt()),
        variance_ratio=float((other / safe).log().abs().mean().exp()),
        distance=float(((moved + spread).sum() / safe.sum()).sqrt()),
    )  # fmt: skip


def batchnorm(subjects: Sequence[MarkedModel], settings: BatchNormSettings | None = None) -> Batchnorm:
    """Compare BatchNorm statistics of clean and watermark samples in each model."""
    chosen = settings or BatchNormSettings()
    if not subjects:
        raise InputError("BatchNorm statistics need at least one model.")
    return Batchnorm(settings=chosen, models=tuple(_channels(subject, chosen) for subject in subjects))


def _channels(subject: MarkedModel, settings: BatchNormSettings) -> Channels:
    model = subject.copy()
    every = dict(batch_norms(model))
    layers = {name: one for name, one in every.items() if one.track_running_stats and one.running_mean is not None}
    if not layers:
        raise InputError(f"{subject.label} has no BatchNorm layer that keeps statistics: there is nothing to compare.")
    number = settings.layer or min(9, len(layers))
    if not 1 <= number <= len(layers):
        raise InputError(f"layer must be 1..{len(layers)}, the BatchNorm layers of {subject.label}, got {number}.")
    samples = subject.marked(settings.images)
    plain = subject.clean_batches(subject.test, len(samples), settings.seed)
    found: list[list[tuple[Tensor, Tensor]]] = []
    for batches in (plain, subject.batches(samples.images)):
        estimate_statistics(model, batches)
        pairs = [(one.get_buffer("running_mean"), one.get_buffer("running_var")) for one in layers.values()]
        found.append([(mean.double().cpu(), variance.double().cpu()) for mean, variance in pairs])
    shifts = [shift_of(name, clean, marked) for name, clean, marked in zip(layers, *found, strict=True)]
    (mean, variance), (marked_mean, marked_variance) = (pairs[number - 1] for pairs in found)
    return Channels(
        label=subject.label, layer=list(layers)[number - 1], number=number, clean_mean=tuple(mean.tolist()),
        clean_variance=tuple(variance.tolist()), marked_mean=tuple(marked_mean.tolist()),
        marked_variance=tuple(marked_variance.tolist()), layers=tuple(shifts),
    )  # fmt: skip
