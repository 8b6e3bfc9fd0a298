"""The watermark passes of APP: lines 6 and 7 of Algorithm 1 for given settings and samples.

They are cheap without changing a number: clean and marked rows pass together, no gradient of BatchNorm's affine
parameters is computed, c-BN runs on BatchNorm's own kernels (:mod:`indelible.nn.fused_clean_batchnorm`), and nothing
waits for the device.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.augment import WHOLE, Share
from indelible.embedding.mixing import MarkedRows
from indelible.nn.clean_batchnorm import clean_statistics
from indelible.nn.collectives import LOCAL, GradientSync
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import add_worst_neighbour_gradient

if TYPE_CHECKING:
    from indelible.embedding.app import AdversarialPerturbation


def watermark_loss(
    model: nn.Module, clean: Tensor, marked: Tensor, labels: Tensor, clean_bn: bool = True, classes: int | None = None
) -> Tensor:
    """L(theta, B_w; B_c): mean cross-entropy of the marked rows, normalised by the clean rows' statistics.

    Without ``clean_bn`` they are normalised by themselves. Running statistics are left alone either way. A model with
    other outputs than ``classes``, those of the key, is refused.
    """
    rows = torch.cat([clean, marked]) if clean_bn else marked
    with clean_statistics(model, clean=len(rows) - len(labels) * clean_bn, rows=len(rows)):
        logits = logits_of(model(rows))
    if classes is not None and logits.shape[-1] != classes:
        raise InputError(
            f"the model has {logits.shape[-1]} outputs, but the key is of {classes} classes. Make a key with "
            f"classes={logits.shape[-1]}."
        )
    return F.cross_entropy(logits[-len(labels) :], labels)


def clean_rows(images: Tensor, most: int, unmarked: Tensor | None = None, share: Share = WHOLE) -> Tensor:
    """Return B_c: this process' part of the first rows of a batch that carry no mark.

    Of all processes together at most ``most``. ``unmarked`` are the rows of the whole batch that carry no mark, on the
    CPU; None if no row carries one.
    """
    if unmarked is not None:
        own = unmarked[:most]
        own = own[own % share.world == share.rank] // share.world
        if len(own):  # a last batch of a few rows may be all marked: then they serve as they are
            return images.index_select(0, own.to(images.device))
    return images[: share.count(most)]


class WatermarkPasses:
    """The two watermark passes of a step, from the step ``first`` on, for given settings and marked rows."""

    def __init__(
        self, model: nn.Module, method: "AdversarialPerturbation", marked: MarkedRows, *, first: int = 0,
        classes: int | None = None,
    ) -> None:  # fmt: skip
        self.model, self.method, self.first, self.marked, self.classes = model, method, first, marked, classes

    def due(self, number: int) -> bool:
        """Tell whether step ``number`` has watermark passes."""
        since = number - self.first
        return since >= 0 and (since < self.method.dense or since % self.method.every == 0)

    def images(self, number: int, rows: int) -> int:
        """Return how many images step ``number`` passes beyond its ``rows`` ordinary ones, over all processes."""
        clean = min(self.method.clean_rows, rows) * self.method.clean_bn
        return self.method.watermark_passes * (self.method.rows + clean) if self.due(number) else 0

    def backward(
        self, images: Tensor, number: int, sync: GradientSync = LOCAL, *, unmarked: Tensor | None = None
    ) -> Tensor:
        """Add the watermark gradient of step ``number``, lines 6 and 7 of Algorithm 1; return the watermark loss.

        ``images`` is the step's ordinary batch, or this process' part; ``unmarked`` as in :func:`clean_rows`.
        """
        model, method, share = self.model, self.method, sync.share
        if not self.due(number):
            return images.new_zeros(())
        if min(method.rows, method.clean_rows) < share.world:
            raise InputError(f"each of {share.world} processes needs a watermark row and a clean row: give more rows.")
        marked, labels = self.marked.batch(number, images, share)
        clean = clean_rows(images, method.clean_rows, unmarked, share)
        return self.add(
            lambda: watermark_loss(model, clean, marked, labels, method.clean_bn, self.classes), clean, number, sync
        )

    def add(self, loss: Callable[[], Tensor], clean: Tensor, number: int, sync: GradientSync) -> Tensor:  # noqa: ARG002
        """Add the gradient of the watermark ``loss`` at the worst neighbour; return the loss there."""
        method = self.method
        return add_worst_neighbour_gradient(
            self.model, loss, method.rows, alpha=method.weight(number - self.first), eps=method.eps, norm=method.norm,
            sync=sync,
        )  # fmt: skip
