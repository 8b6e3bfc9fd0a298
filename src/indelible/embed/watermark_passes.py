"""The watermark passes of APP: lines 6 and 7 of Algorithm 1 for given settings and samples.

What makes them cheap without changing a number:

- the joined batch (clean rows first, marked rows after them) is laid out once and used by both passes;
- the ascent gradient is taken with respect to the perturbed weights only, and no gradient of BatchNorm's affine
  parameters is computed in either pass (c-BN holds them constant);
- c-BN runs on BatchNorm's own kernels, on slices (:mod:`indelible.nn.fused_clean_batchnorm`);
- on a CPU, weight gradients of deep convolutions are matrix products (:mod:`indelible.nn.weight_gradients`);
- norms, steps and restoring are single calls for all tensors where memory allows it; nothing waits for the device.

The clean rows are rows of the ordinary batch, but their activations cannot be taken over from the ordinary pass: there
every BatchNorm normalises by the statistics of the whole batch, here by those of the clean rows.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.share import WHOLE, Share
from indelible.nn.clean_batchnorm import clean_statistics
from indelible.nn.collectives import Average, add_averaged_gradient
from indelible.nn.layers import perturbable_parameters
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import adversarial_delta, perturbed
from indelible.nn.randomness import same_randomness
from indelible.nn.weight_gradients import product_weight_gradients
from indelible.train.objective import Scale, alone, unscaled

if TYPE_CHECKING:
    from indelible.embed.app import AdversarialPerturbation

__all__ = ["MarkedRows", "WatermarkPasses", "watermark_loss"]


def watermark_loss(model: nn.Module, clean: Tensor, marked: Tensor, labels: Tensor, clean_bn: bool = True) -> Tensor:
    """L(theta, B_w; B_c): mean cross-entropy of the marked rows, normalised by the clean rows' statistics.

    Args:
        model: A classifier in training mode.
        clean: float (n, C, H, W), B_c.
        marked: float (m, C, H, W), B_w.
        labels: int64 (m,).
        clean_bn: False normalises the marked rows by themselves; running statistics are left alone either way.
    """
    return _loss(model, _joined(clean, marked, clean_bn), labels, clean_bn)


def _joined(clean: Tensor, marked: Tensor, clean_bn: bool) -> Tensor:
    """Return the batch of a watermark pass in the layout of the ordinary one."""
    if clean.is_contiguous(memory_format=torch.channels_last):
        marked = marked.contiguous(memory_format=torch.channels_last)
    return torch.cat([clean, marked]) if clean_bn else marked


def _loss(model: nn.Module, joined: Tensor, labels: Tensor, clean_bn: bool) -> Tensor:
    rows, marked = len(joined), len(labels)
    with clean_statistics(model, clean=rows - marked * clean_bn, rows=rows), product_weight_gradients(model):
        logits = logits_of(model(joined))
    return F.cross_entropy(logits[-marked:], labels)


class MarkedRows(Protocol):
    """Where B_w comes from: fixed samples (``MarkedBatches``), or stamped rows of the batch (``StampedBatches``)."""

    def batch(self, number: int, like: Tensor, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return this process' part of B_w of step ``number``, images and labels, for a batch ``like``."""
        ...


class WatermarkPasses:
    """The two watermark passes of a step, for given settings and marked rows.

    Args:
        model: Any classifier.
        method: The settings.
        marked: B_w of every step.
        first: The step in which the first watermark pass is made.
    """

    def __init__(
        self, model: nn.Module, method: "AdversarialPerturbation", marked: MarkedRows, *, first: int = 0
    ) -> None:
        self.model, self.method, self.first, self.marked = model, method, first, marked
        self._ascent: list[Tensor] | None = None

    def due(self, number: int) -> bool:
        """Tell whether step ``number`` has watermark passes."""
        since = number - self.first
        return since >= 0 and (since < self.method.dense or since % self.method.every == 0)

    def _fresh(self, number: int) -> bool:
        """Tell whether step ``number``, which has watermark passes, looks for the direction of delta anew."""
        return self._ascent is None or (number - self.first) // self.method.every % self.method.keep == 0

    def images(self, number: int, rows: int) -> int:
        """Return how many images step ``number`` passes beyond its ``rows`` ordinary ones, over all processes."""
        method = self.method
        if not self.due(number):
            return 0
        clean = min(method.clean_rows, rows)
        found = method.rows + clean * method.clean_bn
        if method.eps > 0 and (number - self.first) // method.every % method.keep == 0:
            most = max(method.rows, clean) if method.ascent_rows is None else method.ascent_rows
            found += min(most, method.rows) + min(most, clean) * method.clean_bn
        return found

    def backward(
        self, images: Tensor, number: int, share: Share = WHOLE, average: Average = alone, *, finished: bool = False,
        scale: Scale = unscaled, unmarked: Tensor | None = None,
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
            unmarked: int64 (n,), on the CPU: rows of the whole batch, over all processes, that carry no mark. The clean
                rows are the first of these; None if all are.
        """
        method = self.method
        if not self.due(number):
            return images.new_zeros(())
        few = min(method.rows, method.clean_rows, method.ascent_rows or method.rows)
        if few < share.world:
            raise InputError(f"each of {share.world} processes needs a watermark row and a clean row: give more rows.")
        marked, labels = self.marked.batch(number, images, share)
        clean = images[: share.count(method.clean_rows)]
        if unmarked is not None:
            own = unmarked[: method.clean_rows]
            own = own[own % share.world == share.rank] // share.world
            if len(own):  # a last batch of a few rows may be all marked: then they serve as they are
                clean = images.index_select(0, own.to(images.device))
        return self.add_gradient(
            clean,
            marked,
            labels,
            share,
            average,
            finished=finished,
            scale=scale,
            fresh=self._fresh(number),
            number=number,
        )

    def add_gradient(
        self, clean: Tensor, marked: Tensor, labels: Tensor, share: Share = WHOLE, average: Average = alone, *,
        finished: bool = False, scale: Scale = unscaled, fresh: bool = True, number: int = 0,
    ) -> Tensor:  # fmt: skip
        """Lines 6 and 7 of Algorithm 1: find delta, add the gradient at theta + delta, restore theta."""
        method, weights = self.method, perturbable_parameters(self.model)
        joined = _joined(clean, marked, method.clean_bn)
        scope: AbstractContextManager[None] = nullcontext()
        with same_randomness(self.model) as rewind:
            if method.eps > 0:
                if fresh:
                    rows = self._ascent_rows(joined, clean, marked, labels, share)
                    gradients = self._ascend(weights, *rows, average, scale)
                    rewind()
                else:
                    gradients = list(self._ascent or [])
                # Handed over and let go of: the second pass must find no copy of the weights but the one to restore.
                scope = perturbed(
                    weights, adversarial_delta(weights, gradients, method.eps, method.norm, replace=method.keep == 1)
                )
                del gradients
            with scope:
                loss = _loss(self.model, joined, labels, method.clean_bn)
                total = scale(method.weight(max(0, number - self.first)) * share.weight(method.rows) * loss)
                if finished:
                    add_averaged_gradient(self.model, total, average)
                else:
                    total.backward()
        return loss.detach()

    def _ascent_rows(
        self, joined: Tensor, clean: Tensor, marked: Tensor, labels: Tensor, share: Share
    ) -> tuple[Tensor, Tensor, float]:
        """Return the joined batch of the ascent pass, its labels, and the weight of its loss among processes."""
        most = self.method.ascent_rows
        if most is None or most >= max(self.method.rows, self.method.clean_rows):
            return joined, labels, share.weight(self.method.rows)
        few, total = share.count(most), min(most, self.method.rows)
        return _joined(clean[:few], marked[:few], self.method.clean_bn), labels[:few], share.weight(total)

    def _ascend(
        self, weights: Sequence[Tensor], joined: Tensor, labels: Tensor, weight: float, average: Average, scale: Scale
    ) -> list[Tensor]:
        """Line 6: the ascent gradient at theta, whose scale does not matter."""
        ascent = _loss(self.model, joined, labels, self.method.clean_bn)
        # Unscaled, it could vanish in float16. If it overflows, so does delta, and the scaler leaves the step out.
        gradients = list(torch.autograd.grad(scale(weight * ascent), weights, materialize_grads=True))
        average(gradients)  # before it is used: every process perturbs by the same delta
        if self.method.keep > 1:
            # In the weights' layout: read back from a checkpoint, norms must sum up in the same order.
            gradients = self._ascent = _alike(weights, gradients)
        return gradients

    def state_dict(self) -> dict[str, Tensor]:
        """Return the direction that is kept from one watermark pass to the next; nothing when none is."""
        return {f"ascent.{index}": tensor for index, tensor in enumerate(self._ascent or [])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        kept = [state[f"ascent.{index}"] for index in range(len(state))]
        self._ascent = _alike(perturbable_parameters(self.model), kept) if kept else None


def _alike(weights: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [torch.empty_like(weight).copy_(value) for weight, value in zip(weights, values, strict=True)]
