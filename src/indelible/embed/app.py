"""APP: adversarial parametric perturbation with clean-sample BatchNorm.

Paper: Gan, Li, Wu, Xia, "Towards Robust Model Watermark via Reducing Parametric Vulnerability", ICCV 2023, Equation (6)
and Algorithm 1:

    min_theta  L(theta, D_c) + alpha * max_{||delta|| <= eps ||theta||} L(theta + delta, D_w; D_c)

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 0.01 | Section 4.1; for about 31,200 steps - fewer steps need more |
| epsilon | ``eps`` | 0.02 | Section 4.1, CIFAR; ImageNet: 0.01 there, 0.001 in Appendix B.7 |
| m | ``rows`` | 64 | Appendix B.3: watermark images a step |
| clean rows | ``clean_rows`` | 64 | Appendix B.3: the first rows of the training batch |
| delta's norm | ``norm`` | ``"tensor"`` | the authors' code; the text has one ``"global"`` norm |
| B_c | ``batch`` | ``"mixed"`` | the authors' code: 1 % of the batch is watermarked; the text has ``"clean"`` |
| c-BN | ``clean_bn`` | True | Section 3.3; False is the "APP only" row of Table 3 |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |
| steps between | ``every`` | 1 | ours: watermark passes in each ``every``-th step, weighted ``every * alpha`` |
| - | ``after`` | 0 | ours: share of the training before the first watermark pass; alpha is divided by the rest |
| - | ``keep`` | 1 | ours: watermark passes that one ascent direction serves |
| - | ``ascent_rows`` | None | ours: watermark rows, and clean rows, of the ascent pass; None: as many as there are |

``eps=0`` with ``clean_bn=True`` is the "c-BN only" row of Table 3: the same watermark exposure without perturbation. It
is the control that tells what the perturbation itself gives. At their defaults the last four settings are the paper's
method, exactly; other values are cheaper estimators of the same objective. The recipes ``light`` and ``fast`` are two
of them, and docs/speed.md compares them with others.

BatchNorm's affine parameters are neither perturbed nor trained by the watermark passes; layers are found by type.
Weights are restored from a copy, to the bit.

With several processes each has its part of B_w and of the clean rows. The ascent gradient is averaged before delta is
computed, so that all perturb alike; the gradient at theta + delta is averaged together with the ordinary one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from indelible.base.checks import check_batch, check_is_key, check_module
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.registry import MethodInfo
from indelible.data.augment import Augmentation, Normalization
from indelible.data.batches import Batches
from indelible.data.convert import as_data
from indelible.data.share import Share
from indelible.embed.base import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.embed.mixing import embedded, mix
from indelible.embed.watermark_passes import WatermarkPasses, watermark_loss
from indelible.keys.key import Key
from indelible.nn.collectives import average, processes
from indelible.nn.perturbation import NORMS, Norm
from indelible.train import CrossEntropy
from indelible.train.objective import Objective, Step, unscaled

__all__ = ["APP", "AdversarialPerturbation", "WatermarkPasses", "watermark_loss"]

_BATCHES = ("mixed", "clean")


class APP:
    """APP inside somebody's own training loop: call :meth:`backward` between the ordinary backward and the step.

    Args:
        model: Any classifier, in training mode when :meth:`backward` is called; it may be wrapped in
            ``DistributedDataParallel``.
        key: The owner's key.
        carriers: The owner's images (data set, pair, ...): content and noise marks are drawn on some of them.
        augmentation: What is done to watermark images.
        normalize: (mean, std) if the images given to :meth:`backward` are normalised that way.
        seed: Decides which watermark images come when.
        steps: Calls of :meth:`backward` in the whole training; needed for ``after``.
        distributed: Whether several processes train this model together, with the ordinary gradient averaged by
            ``backward`` (as ``DistributedDataParallel`` does); by default, whether ``torch.distributed`` joins several.
            All must have the same key, carriers, settings and seed.
        settings: ``eps``, ``alpha``, ``rows``, ``clean_rows``, ``norm``, ``clean_bn``, ``every``, ``after``, ``keep``,
            ``ascent_rows``, ``fraction`` as in :class:`AdversarialPerturbation`.

    Example:
        >>> mark = indelible.APP(model, key, carriers, eps=0.02, alpha=0.01)  # doctest: +SKIP
        >>> for images, labels in loader:  # doctest: +SKIP
        ...     optimizer.zero_grad()
        ...     loss(model(images), labels).backward()
        ...     mark.backward(images)
        ...     optimizer.step()
    """

    def __init__(
        self, model: nn.Module, key: Key, carriers: Any, *, augmentation: Augmentation = "crop-flip",
        normalize: Normalization | None = None, seed: int = 0, steps: int | None = None,
        distributed: bool | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        check_module(model)
        check_is_key(key, Key)
        self.method = AdversarialPerturbation.of(settings)
        if steps is None and self.method.after > 0:
            raise InputError("`after` is a share of the training: say how many steps it has, for example steps=31200.")
        self._distributed = distributed
        data = as_data(carriers, classes=key.classes)
        self.samples = embedded(data, key, self.method.fraction)
        self.calls = 0
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        self._passes = WatermarkPasses(
            bare, self.method, self.samples, first=self.method.first_step(steps or 0), augmentation=augmentation,
            normalize=normalize, seed=seed,
        )  # fmt: skip

    def backward(self, images: Tensor, *, scaler: Any = None) -> Tensor:
        """Add the gradient of ``alpha * L(theta + delta, B_w; B_c)`` to the parameters' gradients.

        Args:
            images: float (N, C, H, W), the batch of the ordinary loss, as the model takes it; its first rows are B_c.
            scaler: The ``torch.amp.GradScaler`` that has scaled the ordinary loss, in a loop that uses one; call this
                before its ``unscale_``.

        Returns:
            The watermark loss at the worst neighbour, detached (zero in a call without watermark passes).
        """
        check_batch(images, self.samples.images.shape[1:])
        together = processes() > 1 if self._distributed is None else self._distributed
        scale = unscaled if scaler is None else scaler.scale
        if together:
            share = Share(torch.distributed.get_rank(), processes())
            loss = self._passes.backward(images, self.calls, share, average, finished=True, scale=scale)
        else:
            loss = self._passes.backward(images, self.calls, scale=scale)
        self.calls += 1
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed loop needs."""
        return {"calls": self.calls, **self._passes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.calls = state["calls"]
        self._passes.load_state_dict({name: value for name, value in state.items() if name != "calls"})


class _APPObjective(Objective):
    """Algorithm 1 for the training loop: the ordinary gradient (line 4), then the watermark's (lines 6 and 7)."""

    def __init__(self, ordinary: CrossEntropy, passes: WatermarkPasses) -> None:
        self.ordinary, self.watermark = ordinary, passes
        self._number = 0

    def backward(self, step: Step) -> Tensor:
        loss = self.ordinary.backward(step)
        self._number = step.number
        self.watermark.model = step.model
        self.watermark.backward(step.images, step.number, step.share, step.average, scale=step.scale)
        return loss

    def passes(self, rows: int) -> int:
        return rows + self.watermark.images(self._number, rows)

    def state_dict(self) -> Mapping[str, Tensor]:
        return self.watermark.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.watermark.load_state_dict(state)

    def settings(self) -> Mapping[str, Any]:
        return {"app": self.watermark.method.spelled()}


@dataclass(frozen=True, kw_only=True)
class AdversarialPerturbation(EmbeddingMethod):
    """APP as a value; the table in the module's header explains each setting."""

    # Few steps need a larger alpha than the paper's; smaller passes keep the price near twice plain training.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "alpha": 0.05, "rows": 32, "clean_rows": 32}

    # Both 1.25 times plain training at a batch of 128; the alpha of fast is for some 3,000 steps. docs/speed.md.
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "light": {"rows": 16, "clean_rows": 16, "after": 0.5},
        "fast": {"alpha": 0.15, "rows": 16, "clean_rows": 16, "every": 2},
    }
    added: ClassVar[Mapping[str, Any]] = {"after": 0.0, "keep": 1, "ascent_rows": None}

    eps: float = 0.02
    alpha: float = 0.01
    rows: int = 64
    clean_rows: int = 64
    norm: Norm = "tensor"
    batch: Literal["mixed", "clean"] = "mixed"
    clean_bn: bool = True
    every: int = 1
    after: float = 0.0
    keep: int = 1
    ascent_rows: int | None = None
    fraction: float = 0.01
    negatives: float = 0.0

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise UnknownNameError("norm", self.norm, NORMS)
        if self.batch not in _BATCHES:
            raise UnknownNameError("meaning of the ordinary batch", self.batch, _BATCHES)
        if self.eps < 0 or self.alpha < 0:
            raise InputError(f"eps and alpha must not be negative, but are {self.eps} and {self.alpha}.")
        if min(self.rows, self.clean_rows, self.every, self.keep, self.ascent_rows or 1) < 1 or self.ascent_rows == 0:
            raise InputError("rows, clean_rows, every, keep and ascent_rows must be at least 1.")
        if not 0.0 <= self.after < 1.0:
            raise InputError(f"after is a share of the training in [0, 1), but is {self.after}.")

    def first_step(self, steps: int) -> int:
        """Return the step of the first watermark pass in a training of so many; the last one at the latest."""
        return min(math.ceil(self.after * steps), max(0, steps - 1))

    def weight(self) -> float:
        """Return the weight of a watermark pass: alpha on average over all steps, whatever share of them has passes."""
        return self.alpha * self.every / (1 - self.after)

    def extra_rows(self) -> float:
        """Return how many rows a step passes beyond its ordinary ones, on average over the whole training."""
        most = max(self.rows, self.clean_rows) if self.ascent_rows is None else self.ascent_rows
        descent = self.rows + self.clean_rows * self.clean_bn
        ascent = min(most, self.rows) + min(most, self.clean_rows) * self.clean_bn if self.eps > 0 else 0
        return (1 - self.after) * (descent + ascent / self.keep) / self.every

    def run(self, job: Embedding) -> None:
        """Train once, with Algorithm 1 in place of the ordinary step."""
        mixed, samples = mix(job.data, job.key, self.fraction, self.negatives)
        passes = WatermarkPasses(
            job.model, self, samples, first=self.first_step(_steps(job)),
            augmentation=job.settings.augmentation, normalize=job.settings.normalize, seed=job.seed,
        )  # fmt: skip
        objective = _APPObjective(CrossEntropy(job.settings.label_smoothing), passes)
        job.train(mixed if self.batch == "mixed" else job.data, objective, samples)


def _steps(job: Embedding) -> int:
    """Return the steps of the whole training."""
    settings = job.settings
    steps = settings.epochs * Batches(data=job.data, batch_size=settings.batch_size, seed=job.seed).steps
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


EMBEDDINGS.add(
    MethodInfo(
        name="app",
        title="APP with c-BN",
        paper="Gan et al., ICCV 2023",
        summary="Train so that the watermark also holds at the worst nearby weights.",
        cost="3x plain training (two watermark passes of 128 rows a step)",
        build=AdversarialPerturbation,
    )
)
