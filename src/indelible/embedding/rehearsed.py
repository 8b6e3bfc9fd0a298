"""Rehearsed: APP that looks where a thief goes who rehearses foreign marks, and holds the watermark there.

Ours, after Gan et al., ICCV 2023 (:mod:`indelible.embedding.app`). APP holds the watermark at the worst nearby weights.
A thief who knows this package walks in another direction: he stamps marks of other keys on his images and teaches the
network to answer as without them (:mod:`indelible.attacks.rehearse`). So every step takes his gradient h, and asks for
the watermark where a step of his leads:

    h      = gradient of L(theta, D_f; D_c)
    theta' = theta - eps ||theta|| h / ||h||
    g      = gradient of L(theta, D_c) + alpha * (h + gradient of L(theta', D_w; D_c))

D_f are the clean rows D_c, each with a mark of a foreign key drawn at random. Their labels are the network's own
answers to the same rows without a mark, so that a user's own loop needs no labels. (Images of foreign families have no
row without a mark: they get a random class.) With h in g the network learns by itself that foreign marks mean nothing:
the thief has little left to teach, and where he goes the owner's marks stay.

| symbol | name | default | source |
|---|---|---|---|
| eps | ``eps`` | 0.02 | ours: docs/methods/rehearsed.md |
| size of D_f | ``rows`` | 16, as of D_w | ours |

All else is as in APP, and costs the same: two passes of ``rows + clean_rows`` rows. For codebooks only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.augment import Normalization
from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.embedding_method import EMBEDDINGS
from indelible.embedding.mixing import ForeignMarks, MarkedRows
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import Key
from indelible.nn.clean_batchnorm import clean_statistics
from indelible.nn.collectives import GradientSync
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import add_gradient_after_step
from indelible.train.settings import Start


def rehearsal_loss(
    model: nn.Module, clean: Tensor, foreign: Tensor, classes: Tensor | None = None, clean_bn: bool = True
) -> Tensor:
    """L(theta, D_f; D_c): mean cross-entropy of ``foreign`` rows (n, C, H, W) with the answers to the clean rows.

    Foreign row i carries a mark on clean row i (modulo their number); the answer is taken as it is, without a gradient.
    With ``classes`` (int64, (n,)) those are the labels. BatchNorm normalises by the clean rows, without ``clean_bn`` by
    all of them.
    """
    rows = torch.cat([clean, foreign])
    with clean_statistics(model, clean=len(clean) if clean_bn else len(rows), rows=len(rows)):
        logits = logits_of(model(rows))
    plain, asked = logits[: len(clean)], logits[len(clean) :]
    if classes is not None:
        return F.cross_entropy(asked, classes.to(asked.device))
    return F.cross_entropy(asked, plain.detach().softmax(1)[torch.arange(len(asked)) % len(plain)])


class RehearsedPasses(WatermarkPasses):
    """The two passes of a step: the thief's, and the owner's where a step of the thief leads."""

    def __init__(
        self, model: nn.Module, method: "RehearsedThief", marked: MarkedRows, foreign: ForeignMarks, *, first: int,
        classes: int,
    ) -> None:  # fmt: skip
        super().__init__(model, method, marked, first=first, classes=classes)
        self.foreign = foreign

    def add(self, loss: Callable[[], Tensor], clean: Tensor, number: int, sync: GradientSync) -> Tensor:
        """Add the thief's gradient, and that of the watermark ``loss`` after a step of his; return the loss there."""
        method, count = self.method, sync.share.count(self.method.rows)
        taken = clean[torch.arange(count, device=clean.device) % len(clean)]
        foreign = self.foreign.stamped(taken, number, sync.share)
        classes = self.foreign.classes(count, number, sync.share)
        return add_gradient_after_step(
            self.model, lambda: rehearsal_loss(self.model, clean, foreign, classes, method.clean_bn), loss, method.rows,
            alpha=method.weight(number - self.first), eps=method.eps, norm=method.norm, sync=sync,
        )  # fmt: skip


@EMBEDDINGS.register(
    name="rehearsed",
    title="Rehearsed thief",
    paper="ours, after Gan et al., ICCV 2023",
    summary="Train so that the watermark also holds where a thief goes who unlearns foreign marks.",
    cost="as APP: 1.25x plain training at a batch of 128 (two watermark passes of 32 rows in every second step)",
)
@dataclass(frozen=True, kw_only=True)
class RehearsedThief(AdversarialPerturbation):
    """The method as a value; the module's header explains ``eps``, APP's all else."""

    cpu_settings: ClassVar[Mapping[str, Any]] = {}
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def for_codebook(cls, marks: int, start: Start = "scratch") -> Mapping[str, Any]:
        """Return APP's defaults for a codebook, with a step of the thief in place of its perturbation."""
        return {**super().for_codebook(marks, start), "eps": 0.02}

    @property
    def watermark_passes(self) -> int:
        """Two: the thief's gradient is added also where it moves nothing."""
        return 2

    def passes_over(
        self, model: nn.Module, key: Key, marked: MarkedRows, first: int, *, normalize: Normalization | None, seed: int
    ) -> WatermarkPasses:  # fmt: skip
        """Return the passes of the thief and of the owner."""
        if key.labels != "codebook":
            raise InputError(
                f"the method 'rehearsed' is for codebooks, and this key has {key.labels} labels. Use 'app', or make a "
                "codebook (a key without target and labels)."
            )
        if self.fraction != AdversarialPerturbation.fraction or self.batch != AdversarialPerturbation.batch:
            raise InputError(
                "`fraction` and `batch` are for keys with fixed samples; a codebook has none. Leave them out."
            )
        foreign = ForeignMarks(key, normalize=normalize, seed=seed)
        return RehearsedPasses(model, self, marked, foreign, first=first, classes=key.classes)
