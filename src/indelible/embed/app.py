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
| steps between | ``every`` | 1 | ours: a watermark pass each ``every`` steps, weighted ``every * alpha`` |

``eps=0`` with ``clean_bn=True`` is the "c-BN only" row of Table 3: the same watermark exposure without perturbation. It
is the control that tells what the perturbation itself gives. BatchNorm's affine parameters are neither perturbed nor
trained by the watermark passes; layers are found by type. Weights are restored from a copy, to the bit.

With several processes each has its part of B_w and of the clean rows. The ascent gradient is averaged before delta is
computed, so that all perturb alike; the gradient at theta + delta is averaged together with the ordinary one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.registry import MethodInfo
from indelible.data.augment import Augmentation, Normalization
from indelible.data.convert import as_data
from indelible.data.share import WHOLE, Share
from indelible.embed.base import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.embed.marked import MarkedBatches
from indelible.embed.mixing import embedded, mix
from indelible.keys.key import Key, WatermarkSamples
from indelible.nn.clean_batchnorm import clean_statistics
from indelible.nn.collectives import Average, add_averaged_gradient, average, processes
from indelible.nn.layers import perturbable_parameters
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import NORMS, Norm, adversarial_delta, perturbed
from indelible.nn.randomness import same_randomness
from indelible.train import CrossEntropy
from indelible.train.objective import Objective, Scale, Step, alone, unscaled

__all__ = ["APP", "AdversarialPerturbation", "WatermarkPasses", "watermark_loss"]

_BATCHES = ("mixed", "clean")


def watermark_loss(model: nn.Module, clean: Tensor, marked: Tensor, labels: Tensor, clean_bn: bool = True) -> Tensor:
    """L(theta, B_w; B_c): mean cross-entropy of the marked rows, normalised by the clean rows' statistics.

    Args:
        model: A classifier in training mode.
        clean: float (n, C, H, W), B_c.
        marked: float (m, C, H, W), B_w.
        labels: int64 (m,).
        clean_bn: False normalises the marked rows by themselves; running statistics are left alone either way.
    """
    joined = torch.cat([clean, marked]) if clean_bn else marked
    if clean.is_contiguous(memory_format=torch.channels_last):
        joined = joined.contiguous(memory_format=torch.channels_last)
    with clean_statistics(model, clean=len(joined) - len(marked) * clean_bn, rows=len(joined)):
        logits = logits_of(model(joined))
    return F.cross_entropy(logits[-len(marked) :], labels)


class WatermarkPasses:
    """The two watermark passes of a step, for given settings and samples.

    Args:
        model: Any classifier.
        method: The settings.
        samples: D_w, the embedded watermark samples.
        augmentation: What is done to watermark images.
        normalize: (mean, std) that the model's input is normalised by.
        seed: Decides which watermark images come when.
    """

    def __init__(
        self, model: nn.Module, method: "AdversarialPerturbation", samples: WatermarkSamples, *,
        augmentation: Augmentation = "crop-flip", normalize: Normalization | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.model, self.method = model, method
        self.marked = MarkedBatches(samples, method.rows, augmentation=augmentation, normalize=normalize, seed=seed)

    def backward(
        self, images: Tensor, number: int, share: Share = WHOLE, average: Average = alone, *, finished: bool = False,
        scale: Scale = unscaled,
    ) -> Tensor:  # fmt: skip
        """Add the watermark gradient of step ``number``; return its loss.

        Args:
            images: The step's ordinary batch; of several processes, this one's part of it.
            number: Steps before this one.
            share: Which part that is; watermark and clean rows are dealt out alike.
            average: Replaces tensors by their mean over processes.
            finished: The ordinary gradient is averaged already: average the watermark's by itself. Otherwise the caller
                averages the sum of both.
            scale: Scales a loss as that of the ordinary gradient was.
        """
        method = self.method
        if number % method.every:
            return images.new_zeros(())
        if min(method.rows, method.clean_rows) < share.world:
            raise InputError(f"each of {share.world} processes needs a watermark row and a clean row: give more rows.")
        marked, labels = self.marked.batch(number, images, share)
        clean = images[: share.count(method.clean_rows)]
        weight = share.weight(method.rows)
        return self.add_gradient(clean, marked, labels, weight, average, finished=finished, scale=scale)

    def add_gradient(
        self, clean: Tensor, marked: Tensor, labels: Tensor, weight: float = 1.0, average: Average = alone, *,
        finished: bool = False, scale: Scale = unscaled,
    ) -> Tensor:  # fmt: skip
        """Lines 6 and 7 of Algorithm 1: find delta, add the gradient at theta + delta, restore theta."""
        method, weights = self.method, perturbable_parameters(self.model)
        scope: AbstractContextManager[None] = nullcontext()
        with same_randomness(self.model) as rewind:
            if method.eps > 0:
                # Handed over and let go of: the second pass must find no copy of the weights but the one to restore.
                scope = perturbed(weights, self._delta(weights, clean, marked, labels, weight, average, scale))
                rewind()
            with scope:
                loss = watermark_loss(self.model, clean, marked, labels, method.clean_bn)
                total = scale(method.alpha * method.every * weight * loss)
                if finished:
                    add_averaged_gradient(self.model, total, average)
                else:
                    total.backward()
        return loss.detach()

    def _delta(
        self, weights: Sequence[Tensor], clean: Tensor, marked: Tensor, labels: Tensor, weight: float, average: Average,
        scale: Scale,
    ) -> list[Tensor]:  # fmt: skip
        """Line 6: the ascent pass at theta, and delta from its gradient, whose scale does not matter."""
        ascent = watermark_loss(self.model, clean, marked, labels, self.method.clean_bn)
        # Unscaled, it could vanish in float16. If it overflows, so does delta, and the scaler leaves the step out.
        gradients = list(torch.autograd.grad(scale(weight * ascent), weights, materialize_grads=True))
        average(gradients)  # before it is used: every process perturbs by the same delta
        return adversarial_delta(weights, gradients, self.method.eps, self.method.norm, replace=True)


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
        distributed: Whether several processes train this model together, with the ordinary gradient averaged by
            ``backward`` (as ``DistributedDataParallel`` does); by default, whether ``torch.distributed`` joins several.
            All must have the same key, carriers, settings and seed.
        settings: ``eps``, ``alpha``, ``rows``, ``clean_rows``, ``norm``, ``clean_bn``, ``every``, ``fraction`` as in
            :class:`AdversarialPerturbation`.

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
        normalize: Normalization | None = None, seed: int = 0, distributed: bool | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.method = AdversarialPerturbation.of(settings)
        self._distributed = distributed
        data = as_data(carriers, classes=key.classes)
        self.samples = embedded(data, key, self.method.fraction)
        self.calls = 0
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        self._passes = WatermarkPasses(
            bare, self.method, self.samples, augmentation=augmentation, normalize=normalize, seed=seed
        )

    def backward(self, images: Tensor, *, scaler: Any = None) -> Tensor:
        """Add the gradient of ``alpha * L(theta + delta, B_w; B_c)`` to the parameters' gradients.

        Args:
            images: float (N, C, H, W), the batch of the ordinary loss, as the model takes it; its first rows are B_c.
            scaler: The ``torch.amp.GradScaler`` that has scaled the ordinary loss, in a loop that uses one; call this
                before its ``unscale_``.

        Returns:
            The watermark loss at the worst neighbour, detached (zero in a call without watermark passes).
        """
        together = processes() > 1 if self._distributed is None else self._distributed
        scale = unscaled if scaler is None else scaler.scale
        if together:
            share = Share(torch.distributed.get_rank(), processes())
            loss = self._passes.backward(images, self.calls, share, average, finished=True, scale=scale)
        else:
            loss = self._passes.backward(images, self.calls, scale=scale)
        self.calls += 1
        return loss

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed loop needs."""
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.calls = state["calls"]


class _APPObjective(Objective):
    """Algorithm 1 for the training loop: the ordinary gradient (line 4), then the watermark's (lines 6 and 7)."""

    def __init__(self, ordinary: CrossEntropy, passes: WatermarkPasses) -> None:
        self.ordinary, self.watermark = ordinary, passes

    def backward(self, step: Step) -> Tensor:
        loss = self.ordinary.backward(step)
        self.watermark.model = step.model
        self.watermark.backward(step.images, step.number, step.share, step.average, scale=step.scale)
        return loss

    def passes(self, rows: int) -> int:
        method = self.watermark.method
        clean = min(method.clean_rows, rows) * method.clean_bn
        return rows + (method.rows + clean) * (2 if method.eps > 0 else 1) // method.every

    def settings(self) -> Mapping[str, Any]:
        return {"app": repr(self.watermark.method)}


@dataclass(frozen=True, kw_only=True)
class AdversarialPerturbation(EmbeddingMethod):
    """APP as a value; the table in the module's header explains each setting."""

    # Few steps need a larger alpha than the paper's; smaller passes keep the price near twice plain training.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02, "alpha": 0.05, "rows": 32, "clean_rows": 32}

    # Measured in docs/speed.md: 16 + 16 rows in every second step cost a quarter of a plain step.
    fast_settings: ClassVar[Mapping[str, Any]] = {"rows": 16, "clean_rows": 16, "every": 2}

    eps: float = 0.02
    alpha: float = 0.01
    rows: int = 64
    clean_rows: int = 64
    norm: Norm = "tensor"
    batch: Literal["mixed", "clean"] = "mixed"
    clean_bn: bool = True
    every: int = 1
    fraction: float = 0.01
    negatives: float = 0.0

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise UnknownNameError("norm", self.norm, NORMS)
        if self.batch not in _BATCHES:
            raise UnknownNameError("meaning of the ordinary batch", self.batch, _BATCHES)
        if self.eps < 0 or self.alpha < 0:
            raise InputError(f"eps and alpha must not be negative, but are {self.eps} and {self.alpha}.")
        if min(self.rows, self.clean_rows, self.every) < 1:
            raise InputError("rows, clean_rows and every must be at least 1.")

    def run(self, job: Embedding) -> None:
        """Train once, with Algorithm 1 in place of the ordinary step."""
        mixed, samples = mix(job.data, job.key, self.fraction, self.negatives)
        passes = WatermarkPasses(
            job.model, self, samples,
            augmentation=job.settings.augmentation, normalize=job.settings.normalize, seed=job.seed,
        )  # fmt: skip
        objective = _APPObjective(CrossEntropy(job.settings.label_smoothing), passes)
        job.train(mixed if self.batch == "mixed" else job.data, objective, samples)


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
