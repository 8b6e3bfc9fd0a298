"""APP: adversarial parametric perturbation with clean-sample BatchNorm.

Paper: Gan, Li, Wu, Xia, "Towards Robust Model Watermark via Reducing Parametric Vulnerability", ICCV 2023, Equation (6)
and Algorithm 1:

    min_theta  L(theta, D_c) + alpha * max_{||delta|| <= eps ||theta||} L(theta + delta, D_w; D_c)

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 0.01 | Section 4.1; for about 31,200 steps - fewer steps need more |
| epsilon | ``eps`` | 0.02 | Section 4.1, CIFAR; ImageNet: 0.01 there, 0.001 in Appendix B.7 |
| m | ``rows`` | 64 | Appendix B.3: watermark samples per step |
| clean rows | ``clean_rows`` | 64 | Appendix B.3: the first rows of the training batch |
| delta's norm | ``norm`` | ``"tensor"`` | the authors' code; the text has one ``"global"`` norm |
| B_c | ``batch`` | ``"mixed"`` | the authors' code: 1 % of the batch is watermarked; the text has ``"clean"`` |
| c-BN | ``clean_bn`` | True | Section 3.3; False is the "APP only" row of Table 3 |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |
| steps between | ``every`` | 1 | ours: watermark passes in each ``every``-th step, weighted ``every * alpha`` |
| - | ``after`` | 0 | ours: share of the training before the first watermark pass; alpha is divided by the rest |
| H | ``head_start`` | 0 | ours: in step t alpha is multiplied by max(1, H / t), up to 0.1; 0: constant, the paper |

A head start also makes the passes in every step up to t = H / 3: the marks are learnt early, while the learning rate is
high, and held at a low price later. ``eps=0`` with ``clean_bn=True`` is the "c-BN only" row of Table 3, the control
without a perturbation. docs/methods/app.md has the defaults for a codebook, docs/speed.md why.

BatchNorm's affine parameters are neither perturbed nor trained by the watermark passes; layers are found by type.

With several processes each has its part of B_w and of the clean rows. The ascent gradient is averaged before delta is
computed, so that all perturb alike; the gradient at theta + delta is averaged together with the ordinary one.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from indelible.base.checks import check_batch, check_is_key, check_module
from indelible.base.errors import InputError
from indelible.base.methods import settings_in_value
from indelible.data.augment import Augmentation, Normalization, Share, denormalise, normalise, to_float
from indelible.data.batches import Batches
from indelible.embedding.embedding_method import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.embedding.mixing import MarkedRows, OwnLoop, marked_rows
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import Key
from indelible.nn.collectives import GradientSync, average, processes, unscaled
from indelible.nn.perturbation import Norm
from indelible.train import CrossEntropy, TrainSettings
from indelible.train.objective import Distillation, Objective, Step
from indelible.train.settings import Start

_MOST = 0.1  # to which a head start raises alpha
_SHORT = 600 * 128  # images that a trained model is shown: docs/protect-trained.md
_TEMPERATURE = 4.0  # of the answers that a trained model keeps; Hinton et al. (2015) use 2.5 to 4 for small networks
_RANGE = 0.05  # how far beyond [0, 1] an augmentation may take a pixel


class LoopOptions(TypedDict, total=False):
    """Arguments of :class:`APP` that callbacks of other trainers take too."""

    method: "AdversarialPerturbation | None"
    augmentation: Augmentation | None
    normalize: Normalization | None
    seed: int
    steps: int | None
    distributed: bool | None


class APP(OwnLoop):
    """APP inside your own training loop: call :meth:`backward` between the ordinary backward and the step.

    A codebook is stamped on rows of each batch and needs nothing else. A key with one target class has fixed samples:
    it takes ``carriers``.

    Args:
        model: Any classifier, in training mode when :meth:`backward` is called; it may be wrapped in
            ``DistributedDataParallel``.
        key: The owner's key.
        carriers: Not for a codebook. The owner's images (data set, pair, ...): the mark is drawn on some of them.
        augmentation: What is done to watermark samples, and to the rows of a batch before they are stamped; by default
            crop and flip. It makes the marks survive a thief who augments images, also where your loop does not.
        normalize: (mean, std) if the images given to :meth:`backward` are normalised that way.
        seed: Decides which marks, or watermark samples, come when.
        steps: Calls of :meth:`backward` in the whole training; needed for ``after``.
        distributed: Whether several processes train this model together, with the ordinary gradient averaged by
            ``backward`` (as ``DistributedDataParallel`` does); by default, whether ``torch.distributed`` joins several.
            All must have the same key, carriers, settings and seed.
        method: Settings, ``AdversarialPerturbation.for_key(key, eps=0.01)``; by default those for a codebook, and the
            paper's for other keys. ``batch`` and ``negatives`` have no effect here, nor has a codebook's ``fraction``.

    Example:
        >>> mark = indelible.APP(model, key)  # doctest: +SKIP
        >>> for images, labels in loader:  # doctest: +SKIP
        ...     optimizer.zero_grad()
        ...     loss(model(images), labels).backward()
        ...     mark.backward(images)
        ...     optimizer.step()
    """

    @settings_in_value(EMBEDDINGS, "app")
    def __init__(
        self, model: nn.Module, key: Key, carriers: Any = None, *, method: "AdversarialPerturbation | None" = None,
        augmentation: Augmentation | None = None, normalize: Normalization | None = None, seed: int = 0,
        steps: int | None = None, distributed: bool | None = None,
    ) -> None:  # fmt: skip
        check_module(model)
        check_is_key(key, Key)
        self.method = method or AdversarialPerturbation.for_key(key, "paper")
        super().__init__(key, carriers, self.method, AdversarialPerturbation)
        if steps is None and self.method.after > 0:
            raise InputError("`after` is a share of the training: say how many steps it has, for example steps=31200.")
        self._distributed, self._key, self._normalize, self._looked = distributed, key, normalize, False
        marked = marked_rows(
            key, self.samples, self.method.rows, augmentation=augmentation or "crop-flip", normalize=normalize,
            seed=seed, augmented=False,
        )  # fmt: skip
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        first = self.method.first_step(steps or 0)
        self._passes = self.method.passes_over(bare, key, marked, first, normalize=normalize, seed=seed)

    def backward(self, images: Tensor, *, marked: Tensor | None = None, scaler: Any = None) -> Tensor:
        """Add the gradient of ``alpha * L(theta + delta, B_w; B_c)`` to the parameters' gradients.

        Args:
            images: float (N, C, H, W), the batch of the ordinary loss, as the model takes it; or uint8, which is
                divided by 255 and normalised. Its first rows are B_c.
            marked: bool (N,), for a loop that mixes watermark samples into its batches: which rows they are. They do
                not serve as clean rows. In one process only.
            scaler: The ``torch.amp.GradScaler`` that has scaled the ordinary loss, in a loop that uses one; call this
                before its ``unscale_``.

        Returns:
            The watermark loss at the worst neighbour, detached (zero in a call without watermark passes).
        """
        images = self._as_input(images)
        together = processes() > 1 if self._distributed is None else self._distributed
        scale = unscaled if scaler is None else scaler.scale
        if together:
            if marked is not None:
                raise InputError("`marked` is for a loop in one process. Give each process a batch without marks.")
            share = Share(torch.distributed.get_rank(), processes())
            sync = GradientSync(share, average, scale, averaged=True)
        else:
            sync = GradientSync(scale=scale)
        free = None if marked is None else (~marked.cpu()).nonzero().flatten()
        loss = self._passes.backward(images, self.calls, sync, unmarked=free)
        self.calls += 1
        return loss

    def _as_input(self, images: Tensor) -> Tensor:
        """Return the batch as the model takes it; refuse, at the first call, one that the key does not fit."""
        if isinstance(images, Tensor) and images.dtype == torch.uint8:
            images = normalise(to_float(images), self._normalize)
        check_batch(images, self._key.shape)
        if not self._looked:
            self._looked = True  # looking at values waits for the device: once is enough
            low, high = (float(value) for value in torch.aminmax(denormalise(images.detach(), self._normalize)))
            if low < -_RANGE or high > 1.0 + _RANGE:
                raise InputError(
                    f"expected images in [0, 1], got values from {low:.2f} to {high:.2f}. If they are normalised, say "
                    "how: normalize=((mean, ...), (std, ...)), one number for each channel."
                )
        return images


class _APPObjective(Objective):
    """Algorithm 1 for the training loop: the ordinary gradient (line 4), then the watermark's (lines 6 and 7)."""

    def __init__(self, ordinary: Objective, passes: WatermarkPasses, marked: Tensor | None = None) -> None:
        self.ordinary, self.watermark = ordinary, passes
        self._number = 0
        self._marked = marked  # bool (N,): rows of the training set that carry the mark, None for none

    def backward(self, step: Step) -> Tensor:
        loss = self.ordinary.backward(step)
        self._number = step.number
        self.watermark.model = step.model
        free = None
        if self._marked is not None and step.indices is not None and self.watermark.due(step.number):
            free = (~self._marked[step.indices()]).nonzero().flatten()
        self.watermark.backward(step.images, step.number, step.sync, unmarked=free)
        return loss

    def passes(self, rows: int) -> int:
        return self.ordinary.passes(rows) + self.watermark.images(self._number, rows)


@EMBEDDINGS.register(
    name="app",
    title="APP with c-BN",
    paper="Gan et al., ICCV 2023",
    summary="Train so that the watermark also holds at the worst nearby weights.",
    cost="3x plain training (two watermark passes of 128 rows per step)",
)
@dataclass(frozen=True, kw_only=True)
class AdversarialPerturbation(EmbeddingMethod):
    """APP as a value; the table in the module's header explains each setting."""

    # Few steps need a larger alpha than the paper's; smaller passes keep the price near twice plain training.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "alpha": 0.05, "rows": 32, "clean_rows": 32}

    # Beside balanced: light has no ascent pass, so it is the control, and its passes cost half; strong has the paper's
    # eps. docs/speed.md has the price of each in time and in accuracy.
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "balanced": {},
        "light": {"eps": 0.0, "every": 3},
        "strong": {"eps": 0.02, "rows": 32, "clean_rows": 32},
    }

    ranges: ClassVar[Mapping[str, str]] = {
        "eps": "[0, inf)", "alpha": "[0, inf)", "rows": "[1, inf)", "clean_rows": "[1, inf)", "every": "[1, inf)",
        "after": "[0, 1)", "head_start": "[0, inf)",
    }  # fmt: skip

    eps: float = 0.02
    alpha: float = 0.01
    rows: int = 64
    clean_rows: int = 64
    norm: Norm = "tensor"
    batch: Literal["mixed", "clean"] = "mixed"
    clean_bn: bool = True
    every: int = 1
    after: float = 0.0
    head_start: int = 0
    fraction: float = 0.01
    negatives: float = 0.0

    @classmethod
    def for_codebook(cls, marks: int, start: Start = "scratch") -> Mapping[str, Any]:
        """Return the defaults for a codebook: a row, and 62 steps of head start, for each mark.

        A pass has 16 rows at least. Fewer marks than that are shown more often in each pass, and need fewer steps. In a
        trained model, which has learnt its features, marks need half of the weight and of the head start.
        """
        rows = max(16, marks)
        head_start = 62 * marks * marks // rows
        book: dict[str, Any] = {"eps": 0.005, "rows": rows, "clean_rows": 16}
        if start == "trained":
            return {**book, "alpha": 0.015, "every": 3, "head_start": head_start // 2}
        return {**book, "alpha": 0.03, "every": 2, "head_start": head_start}

    @property
    def watermark_passes(self) -> int:
        """Passes over the watermark batch in a step that has any: ascent and descent, or descent alone."""
        return 2 if self.eps > 0 else 1

    @property
    def dense(self) -> int:
        """Steps after the first watermark pass that all have passes: a third of the head start."""
        return self.head_start // 3

    def first_step(self, steps: int) -> int:
        """Return the step of the first watermark pass in a training of so many; the last one at the latest."""
        return min(math.ceil(self.after * steps), max(0, steps - 1))

    def weight(self, number: int) -> float:
        """Return the weight of a watermark pass, ``number`` steps after the first one.

        Without a head start, alpha on average over all steps, whatever share of them has passes.
        """
        raised = max(1.0, self.head_start / (number + 1))
        rare = 1 if number < self.dense else self.every
        return max(self.alpha, min(_MOST, self.alpha * raised)) * rare / (1 - self.after)

    def extra_rows(self, steps: int | None = None) -> float:
        """Return how many rows a step passes beyond its ordinary ones, on average over a training of so many steps.

        Without ``steps``, over one that is long beside its head start.
        """
        share = 1 / self.every
        if steps is not None and self.dense:
            left = max(1, steps - self.first_step(steps))
            often = min(1.0, self.dense / left)
            share = often + (1 - often) / self.every
        return (1 - self.after) * self.watermark_passes * (self.rows + self.clean_rows * self.clean_bn) * share

    def passes_over(
        self, model: nn.Module, key: Key, marked: MarkedRows, first: int, *, normalize: Normalization | None, seed: int
    ) -> WatermarkPasses:  # fmt: skip
        """Return the watermark passes of a training whose rows with marks are ``marked``, from step ``first`` on."""
        del normalize, seed  # for methods that draw rows of their own
        return WatermarkPasses(model, self, marked, first=first, classes=key.classes)

    def short_form(self, key: Key, images: int) -> Mapping[str, Any]:
        if key.labels != "codebook":
            return {}
        return {"batch_size": 128, "epochs": max(1, math.ceil(_SHORT / images))}

    def passes(self, train: TrainSettings, images: float) -> float:
        plain = train.epochs * images
        steps = max(1, round(plain / train.batch_size))
        return plain * (1 + self.extra_rows(steps) / train.batch_size)

    def run(self, job: Embedding) -> None:
        how = job.settings
        steps = how.epochs * Batches(data=job.data, batch_size=how.batch_size, seed=job.seed).steps
        first = self.first_step(min(steps, how.max_steps or steps))
        ordinary = _ordinary(job)
        # The rows of a codebook are stamped for the watermark passes alone.
        fraction = 0.0 if job.key.labels == "codebook" else self.fraction
        data, objective, samples = job.marked(ordinary, fraction, self.negatives)
        rows = marked_rows(
            job.key, samples, self.rows, augmentation=how.augmentation, normalize=how.normalize, seed=job.seed
        )  # fmt: skip
        passes, taken = self.passes_over(job.model, job.key, rows, first, normalize=how.normalize, seed=job.seed), None
        if samples is not None and self.batch == "mixed":
            taken = torch.zeros(len(data), dtype=torch.bool)
            taken[samples.carriers] = True
        elif samples is not None:
            data = job.data
        job.train(data, _APPObjective(objective, passes, taken), samples)


def _ordinary(job: Embedding) -> Objective:
    """Return the ordinary objective: the labels; for a trained model and a codebook, the model's answers as it came.

    A model has learnt more than its labels say, and a short run has no time to learn it again.
    """
    how = job.settings
    if job.start == "scratch" or job.key.labels != "codebook":
        return CrossEntropy(how.label_smoothing)
    if how.label_smoothing:
        raise InputError(
            "label_smoothing has no effect on a trained model: a codebook is embedded in it with the model's own "
            "answers in place of labels. Leave it out, or use start='scratch', which trains on with labels."
        )
    return Distillation(copy.deepcopy(job.model), hard=False, temperature=_TEMPERATURE)
