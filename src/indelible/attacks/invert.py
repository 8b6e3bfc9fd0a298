"""Inversion: search the marks of a codebook in the model itself, then unlearn all that were found at once.

Paper of the search: Wang et al., "Neural Cleanse: Identifying and Mitigating Backdoor Attacks in Neural Networks", IEEE
S&P 2019, Section IV (see :mod:`indelible.attacks.neural_cleanse`). The rest is ours. For j = 1..J, and every class y:

    m_j, p_j = argmin  mean CE(f(A(x, m, p)), y) + lambda sum_u c_j(u) m(u),    c_j = 1 + r (m_1 + ... + m_(j-1))

A(x, m, p) = (1 - m) x + m p as in the paper; u runs over pixels. Then, for a share s of the rows of every batch, each
with one of all J times K patches drawn at random:

    min over theta of  E[ CE(f(x'), y) ],   x' = x for a share 1 - s of the rows, A(x, m, p) for the others

| symbol | name | default | source |
|---|---|---|---|
| J | ``patterns`` | 2 | ours: 16 marks of ten classes are 1.6 a class |
| r | ``repel`` | 9 | ours: a pixel of an earlier mask costs up to ten times as much |
| s | ``share`` | by budget: 0.25 or 0.5 | ours |

All settings: docs/attacks/invert.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.neural_cleanse import NeuralCleanse, PatchSearch, Triggers
from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.attacks.strengths import TrainedStrength, Training
from indelible.base.seeding import derive_seed, generator
from indelible.data.augment import Normalization, normalise
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.train import Objective, Schedule, Step

SHARES = (0.25, 0.5)


def prices(masks: Sequence[Tensor], repel: float) -> Tensor | None:
    """Return what each pixel of the next mask costs beside lambda, (K, 1, H, W); None when no mask was found yet."""
    return 1.0 + repel * torch.stack(list(masks)).sum(0) if masks else None


def stamp_rows(images: Tensor, masks: Tensor, patterns: Tensor, which: Tensor) -> Tensor:
    """Put the patch ``which`` (int64 (N,)) of K on each of N images; patterns are in the units of the images."""
    return torch.lerp(images, patterns[which], masks[which].expand_as(images))


class PatternUnlearning(Objective):
    """Cross-entropy under true labels, with one of K patches on each of the last rows of every batch."""

    def __init__(
        self, masks: Tensor, patterns: Tensor, share: float, *, normalize: Normalization | None, seed: int
    ) -> None:
        self.masks, self.patterns = masks, normalise(patterns, normalize)
        self.share, self.seed = share, seed

    def loss(self, step: Step) -> Tensor:
        """Stamp, then return the mean cross-entropy."""
        return F.cross_entropy(logits_of(step.model(self.stamped(step.images, step.number))), step.labels)

    def stamped(self, images: Tensor, number: int) -> Tensor:
        """Return the batch (N, C, H, W) of step ``number`` with patches on its last rows."""
        count = max(1, round(self.share * len(images)))
        random = generator(self.seed, "patches", number)
        which = torch.randint(len(self.masks), (count,), generator=random).to(images.device)
        changed = images.clone()
        masks, patterns = self.masks.to(images.dtype), self.patterns.to(images.dtype)
        changed[-count:] = stamp_rows(images[-count:], masks, patterns, which)
        return changed


@ATTACKS.register(
    name="invert",
    title="Inversion of the codebook",
    paper="Wang et al., S&P 2019 (the search); the rest ours",
    summary="Search several patches for every class by Neural Cleanse, and unlearn all of them at once.",
    cost="30 epochs of the attacker's images for each class to search, 30 for each of two shares to fine-tune",
)
@dataclass(frozen=True, kw_only=True)
class Inversion(TrainedStrength):
    """Search several patches for each class and unlearn all; docs/attacks/invert.md explains each setting."""

    strength = "share"
    strengths = SHARES
    cpu_settings = {
        "cleanse_epochs": 1, "cleanse_images": 3000, "cleanse_batch": 16, "cleanse_round": 125, "epochs": 4, "every": 1
    }  # fmt: skip
    ranges = {"patterns": "[1, inf)", "repel": "[0, inf)", "share": "(0, 1]", "cleanse_images": "[1, inf)"}

    patterns: int = 2
    repel: float = 9.0
    share: float | None = None
    ba_drop: float = 0.03
    cleanse_epochs: int | None = None
    cleanse_images: int | None = None
    cleanse_batch: int = 32
    cleanse_round: int = 1000
    epochs: int = 30
    lr: float = 0.05
    every: float = 5
    gamma: float = 0.5
    rows: int | None = None

    def passes(self, images: float, classes: int) -> float:
        searched = min(images, self.cleanse_images or images) * self.search(classes).epochs * classes * self.patterns
        return searched + super().passes(images, classes)

    def trainer(self, job: Removal) -> Training:
        """Search; a training unlearns what was found."""
        found = self._search(job, job.data if self.share is not None else job.parts()[0])
        masks = torch.cat([one.masks for one in found]).to(job.place)
        patterns = torch.cat([one.patterns for one in found]).to(job.place)
        settings = self.training(schedule=Schedule.every(self.every, self.gamma))

        def train(model: nn.Module, share: float, data: Data) -> None:
            objective = PatternUnlearning(masks, patterns, share, normalize=job.normalize, seed=job.seed)
            job.train(settings, phase=f"unlearning, {share:g}", objective=objective, data=data, model=model)

        return train

    def search(self, classes: int) -> NeuralCleanse:
        """Return the search that is made ``patterns`` times."""
        epochs = (5 if classes >= 100 else 15) if self.cleanse_epochs is None else self.cleanse_epochs
        return NeuralCleanse(
            epochs=epochs, batch_size=self.cleanse_batch, round_images=self.cleanse_round, rows=self.rows
        )

    def _search(self, job: Removal, data: Data) -> list[Triggers]:
        """Search ``patterns`` times, each time off the places that were found before."""
        search, found = self.search(len(job.data.classes)), list[Triggers]()
        for number in range(self.patterns):
            seed = derive_seed(job.seed, "inversion", number)
            triggers = PatchSearch(
                search, job.model, self._some(data, seed), seed=seed, normalize=job.normalize, folder=job.folder,
                device=job.place, dear=prices([one.masks for one in found], self.repel),
                name=f"neural-cleanse-{number + 1}",
            ).run()  # fmt: skip
            job.count(triggers.images, seconds=triggers.earlier)
            found.append(triggers)
        job.note(
            mask_norms=[[round(float(norm), 3) for norm in one.norms()] for one in found],
            patch_success=[[round(float(rate), 3) for rate in one.success] for one in found],
        )
        return found

    def _some(self, data: Data, seed: int) -> Data:
        """Return the images of one search."""
        if self.cleanse_images is None or self.cleanse_images >= len(data):
            return data
        order = torch.randperm(len(data), generator=generator(seed, "images"))
        return data.subset(order[: self.cleanse_images].sort().values)
