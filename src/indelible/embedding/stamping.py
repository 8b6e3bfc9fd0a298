"""Marks of a codebook on fresh carriers: rows of the training batch itself, after augmentation.

An owner trains the model, so a mark need not sit on a few fixed images. In every step some rows of the ordinary batch
get a mark each, drawn at random, and its class as label. The mark is put on after augmentation: it is neither cropped
nor flipped, so that two marks stay as different as they are. Which mark goes on which row is a pure function of seed
and step.

*Negatives* are rows with a mark of a foreign key under their true label. They teach the network that other texts mean
nothing, and take away what a thief would unlearn by rehearsing marks of his own (docs/threat-model.md). An image of a
foreign family takes the place of its row and has no true class: its label is drawn at random in every step, which
teaches the network to prefer no class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import WHOLE, Normalization, Share, denormalise, normalise
from indelible.keys.key import Key
from indelible.keys.marks import Stamps
from indelible.train.objective import Objective, Step

# Foreign keys whose marks negatives carry, as many marks as training can meet; none of them is a decoy of a test. Of
# families fewer: each has many images, which take time to generate.
_FOREIGN = 64
_FOREIGN_FAMILIES = 4
_FIRST_FOREIGN = 1_000_000


class StampedBatches:
    """B_w of every step: the first ``rows`` of the step's batch, stamped; they repeat when the batch has fewer."""

    def __init__(self, key: Key, rows: int, *, normalize: Normalization | None = None, seed: int = 0) -> None:
        self.rows, self.seed, self._normalize = rows, seed, normalize
        self._book = key.codebook()
        self._stamps: Stamps | None = None

    def batch(self, number: int, like: Tensor, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return this process' part of the stamped rows of step ``number``: images and labels.

        ``like`` is the batch of the step (N, C, H, W), or this process' ``share`` of it.
        """
        if self._stamps is None or self._stamps.device != like.device:
            self._stamps = self._book.stamps(like.device)
        random = generator(self.seed, "stamps", number)
        marks = share.of(torch.randint(len(self._book), (self.rows,), generator=random))
        draws = share.of(torch.randint(1 << 30, (self.rows,), generator=random))
        carriers = like[torch.arange(len(marks), device=like.device) % len(like)].detach()
        stamped = stamp(carriers, self._stamps, marks, draws, self._normalize)
        return stamped, self._book.classes[marks].to(like.device)


def stamp(images: Tensor, stamps: Stamps, marks: Tensor, draws: Tensor, normalize: Normalization | None) -> Tensor:
    """Return normalised ``images`` (n, C, H, W), each with its mark (int64, (n,)); both may live on the CPU."""
    where = images.device
    plain = denormalise(images, normalize)
    return normalise(stamps.apply(plain, marks.to(where), draws.to(where)), normalize)


class StampedObjective(Objective):
    """Changes the batch of a step before another objective sees it: some rows stamped, some negatives.

    ``fraction`` of the rows, from the first on, get a mark and its class; ``negatives``, from the last on, get a
    foreign mark and keep their label (unrelated images: a random one).
    """

    def __init__(
        self, inner: Objective, key: Key, *, fraction: float, negatives: float = 0.0,
        normalize: Normalization | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        if negatives < 0.0 or not 0.0 <= fraction + negatives <= 1.0:
            raise InputError(
                "the shares of stamped rows and of negatives must not be negative and must lie in [0, 1] together, got "
                f"{fraction} and {negatives}."
            )
        first = key.codebook().marks[0]
        if negatives and first.capacity("embed") is not None:
            raise InputError(
                "negatives are images of foreign keys, and keys over one second data set share its images. Leave out "
                "negatives, or leave out the data set: images are generated then."
            )
        self.inner, self.seed, self._normalize, self._key = inner, seed, normalize, key
        self.fraction, self.negatives, self._own_images = fraction, negatives, first.own_images
        self._marked = StampedBatches(key, 1, normalize=normalize, seed=seed)
        self._foreign: Stamps | None = None

    def start(self, model: nn.Module, device: torch.device) -> None:
        """Get the inner objective ready."""
        self.inner.start(model, device)

    def backward(self, step: Step) -> Tensor:
        """Stamp, then let the inner objective add its gradient."""
        return self.inner.backward(self._changed(step))

    def _changed(self, step: Step) -> Step:
        total = len(step.images) * step.share.world
        images, labels = step.images, step.labels
        count = _part(total, self.fraction, self.seed, step.number)
        if count:
            self._marked.rows = count
            stamped, classes = self._marked.batch(step.number, images, step.share)
            images, labels = images.clone(), labels.clone()
            images[: len(stamped)], labels[: len(stamped)] = stamped.to(images.dtype), classes
        foreign = step.share.count(_part(total, self.negatives, self.seed + 1, step.number))
        if foreign:
            images = images.clone()
            images[-foreign:] = self._with_foreign(images[-foreign:], step)
            if self._own_images:
                random = generator(self.seed, "classes of negatives", step.number, step.share.rank)
                labels = labels.clone()
                labels[-foreign:] = torch.randint(self._key.classes, (foreign,), generator=random).to(labels.device)
        if step.images.is_contiguous(memory_format=torch.channels_last):
            images = images.contiguous(memory_format=torch.channels_last)
        return replace(step, images=images, labels=labels)

    def _with_foreign(self, images: Tensor, step: Step) -> Tensor:
        if self._foreign is None or self._foreign.device != images.device:
            self._foreign = _foreign_stamps(self._key, images.device)
        random = generator(self.seed, "negatives", step.number, step.share.rank)
        which = torch.randint(self._foreign.count, (len(images),), generator=random)
        return stamp(images, self._foreign, which, which, self._normalize).to(images.dtype)

    def passes(self, rows: int) -> int:
        """As many as the inner objective: rows are changed, not added."""
        return self.inner.passes(rows)

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return what the inner objective needs; stamping has no state."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.inner.load_state_dict(state)

    def settings(self) -> Mapping[str, Any]:
        """Return what decides the gradients."""
        return {**self.inner.settings(), "stamped": self.fraction, "negatives": self.negatives}


def _foreign_stamps(key: Key, device: torch.device) -> Stamps:
    """Return the marks of foreign keys that negatives carry."""
    keys = _FOREIGN_FAMILIES if key.codebook().marks[0].own_images else _FOREIGN
    marks = [mark for number in range(keys) for mark in key.decoy(_FIRST_FOREIGN + number).codebook().marks]
    return marks[0].stamps(marks, device)


def check_own_loop(key: Key, carriers: Any, augmentation: Any, settings: Mapping[str, Any]) -> None:
    """Refuse what has no effect in a user's own loop."""
    if key.labels == "codebook":
        given = [("carriers", carriers), ("augmentation", augmentation), ("fraction", settings.get("fraction"))]
        for name, value in given:
            if value is not None:
                raise InputError(
                    f"`{name}` has no effect with a codebook, which is stamped on rows of each batch. Leave it out."
                )
    elif carriers is None:
        raise InputError(
            f"a key with {key.labels} labels has fixed watermark samples: give carriers=, the owner's images. A "
            "codebook (Key.create without target and labels) needs none."
        )
    for name in ("negatives", "batch"):
        if name in settings:
            raise InputError(
                f"`{name}` changes the ordinary batch, which is your loop's own: it has no effect here. Leave it out, "
                "or use indelible.embed, which does the training."
            )


def _part(total: int, share: float, seed: int, number: int) -> int:
    """Return how many of ``total`` rows a share is, rounded at random so that the average over steps is exact."""
    whole, rest = divmod(total * share, 1.0)
    return int(whole) + int(torch.rand((), generator=generator(seed, "part", number)).item() < rest)
