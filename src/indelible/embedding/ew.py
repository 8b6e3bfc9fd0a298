"""EW: watermarking with exponentially re-weighted parameters.

Paper: Namba and Sakuma, "Robust Watermarking of Neural Network with Exponential Weighting", ASIACCS 2019; settings of
the ICCV 2023 paper, Appendix B.1 and B.3:

    EW(theta_l, T)_i = theta_i * exp(T |theta_i|) / max_j exp(T |theta_j|)
    1. pre-training   min_theta  L(theta, D_c)
    2. embedding      min_theta  L(EW(theta, T), D_c + D_w),  from the theta of 1
    3. EW is switched off: the model that leaves is theta

| symbol | name | default | source |
|---|---|---|---|
| T | ``temperature`` | 2.0 | the original |
| - | run's settings | 100 epochs, lr 0.1, x0.1 at 50 and 75 | Appendix B.3: pre-training |
| - | ``pretraining`` | 1.0 | Appendix B.3: share of the run's epochs that is trained clean, all 100 of them |
| - | ``epochs`` | 20 | Appendix B.3: embedding; None: what pre-training leaves of the run's epochs |
| - | ``lr`` | None | Appendix B.3: None is the run's own rate, 0.1 in both phases |
| - | ``milestones`` | 0.5, 0.75 | Appendix B.3: x0.1 at epochs 10 and 15, as shares; None: the run's schedule |
| - | ``leave`` | ``"auto"`` | ``"plain"``: EW off, theta stays (the original); ``"folded"``: EW(theta) stays (ours) |
| - | ``refresh`` | True | ours: batches that re-estimate BatchNorm's statistics once EW is off (200 of them) |
| |D_w| / |D| | ``fraction`` | 0.01 | Section 4.1 |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |

Weights: kernels and matrices of trainable layers that are no normalisation, found by type
(:func:`~indelible.nn.exponential.weighted_tensors`); biases and normalisation stay, as in the original.

When EW goes, every layer's output grows. ``refresh`` averages BatchNorm's statistics anew; a network without BatchNorm
loses the mark (docs/methods/ew.md has figures), so ``"auto"`` is ``"plain"`` where there is BatchNorm, and elsewhere
``"folded"``, which keeps the function as it was trained. A model that comes trained skips pre-training.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, Self

from torch import nn

from indelible.base.errors import InputError
from indelible.data.augment import normalise
from indelible.data.batches import Batches
from indelible.data.images import Data
from indelible.embedding.embedding_method import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.nn.exponential import weighting
from indelible.nn.layers import batch_norms
from indelible.nn.statistics import reestimating
from indelible.nn.surgery import kept_modes
from indelible.train import CrossEntropy, Schedule, TrainSettings

Leave = Literal["auto", "plain", "folded"]
_REFRESH_BATCHES = 200


@EMBEDDINGS.register(
    name="ew",
    title="EW (exponential weighting)",
    paper="Namba and Sakuma, ASIACCS 2019",
    summary="Train clean, then embed with small weights damped, so that the mark rests on large ones.",
    cost="1.2x plain training (100 epochs clean, then 20 with the watermark)",
)
@dataclass(frozen=True, kw_only=True)
class ExponentialWeights(EmbeddingMethod):
    """EW as a value; the table in the module's header explains each setting."""

    temperature: float = 2.0
    pretraining: float = 1.0
    epochs: int | None = 20
    lr: float | None = None
    milestones: tuple[float, ...] | None = (0.5, 0.75)
    leave: Leave = "auto"
    refresh: bool = True
    fraction: float = 0.01
    negatives: float = 0.0

    cpu_settings: ClassVar[Mapping[str, Any]] = {
        "fraction": 0.02, "pretraining": 2 / 3, "epochs": None, "milestones": None, "temperature": 0.5,
    }  # fmt: skip
    # As long as Vanilla in all. The small ResNets have weights of up to 2, at which T = 2.0 is severe and taking EW off
    # costs the mark (docs/methods/ew.md has figures); what counts is T times the largest weight.
    codebook_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.05}
    ranges: ClassVar[Mapping[str, str]] = {
        "temperature": "[0, inf)", "pretraining": "(0, 1]", "epochs": "[1, inf)", "lr": "(0, inf)"
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.milestones is not None:
            object.__setattr__(self, "milestones", tuple(self.milestones))  # JSON gives lists

    def phases(self, settings: TrainSettings) -> tuple[TrainSettings, TrainSettings]:
        """Return how pre-training and embedding train: the run's settings with this method's lengths and schedule."""
        clean = max(1, round(self.pretraining * settings.epochs))
        epochs = settings.epochs - clean if self.epochs is None else self.epochs
        if epochs < 1:
            raise InputError(
                f"pre-training takes all of the run's {settings.epochs} epochs, and none are left to embed the mark. "
                "Give more epochs, a smaller pretraining, or epochs= of the method."
            )
        schedule = settings.schedule
        if self.milestones is not None:
            schedule = Schedule.milestones(*(share * epochs for share in self.milestones))
        return settings.but(epochs=clean), settings.but(epochs=epochs, lr=self.lr or settings.lr, schedule=schedule)

    def passes(self, train: TrainSettings, images: float) -> float:
        return sum(phase.epochs for phase in self.phases(train)) * images

    def run(self, job: Embedding) -> None:
        ordinary = CrossEntropy(job.settings.label_smoothing)
        settings = job.settings
        if job.start == "scratch":
            clean, settings = self.phases(settings)
            job.train(job.data, ordinary, None, settings=clean, phase="pre-training")
        leave = what_stays(job.model, self.leave)
        with weighting(job.model, self.temperature, leave=leave):
            data, objective, samples = job.marked(ordinary, self.fraction, self.negatives)
            job.train(data, objective, samples, settings=settings)
        if leave == "plain" and self.refresh:
            refresh_statistics(job.model, data, settings, job.seed)


def what_stays(model: nn.Module, leave: Leave) -> Literal["plain", "folded"]:
    """Return what ``leave`` means for ``model``: ``"auto"`` is plain where there is BatchNorm, and folded elsewhere."""
    if leave == "auto":
        return "plain" if batch_norms(model) else "folded"
    return leave


def refresh_statistics(model: nn.Module, data: Data, settings: TrainSettings, seed: int) -> None:
    """Average BatchNorm's statistics anew over training batches, where the model is; a pure function of the seed."""
    if not batch_norms(model):
        return
    weight = next(model.parameters())
    batches = Batches(
        data=data, batch_size=settings.batch_size, seed=seed, augmentation=settings.augmentation, device=weight.device
    )
    with kept_modes(model):
        model.train()
        # Every process passes the same whole batches: each by itself, and all find the same.
        with reestimating(model):
            for images, _ in islice(batches.epoch(settings.epochs), _REFRESH_BATCHES):
                model(normalise(images, settings.normalize).to(weight.dtype))


class EW:
    """EW inside your own training loop: train the mixed set inside the block.

    Args:
        model: Any classifier, trained on clean images already.
        temperature: T.
        leave: What stays behind: ``"plain"`` theta (the original), ``"folded"`` EW(theta), or ``"auto"`` as above.

    After ``"plain"``, pass some training images inside :func:`indelible.nn.statistics.reestimating`. Build the
    optimiser before or inside the block: parameters are the same objects throughout.

    Example:
        >>> with indelible.EW(model):  # doctest: +SKIP
        ...     for images, labels in mixed_loader:
        ...         optimizer.zero_grad()
        ...         loss(model(images), labels).backward()
        ...         optimizer.step()
    """

    def __init__(self, model: nn.Module, temperature: float = 2.0, *, leave: Leave = "auto") -> None:
        self.model = model
        self.method = ExponentialWeights(temperature=temperature, leave=leave)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        leave = what_stays(self.model, self.method.leave)
        self._stack.enter_context(weighting(self.model, self.method.temperature, leave=leave))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # (type, error, traceback) as they come
