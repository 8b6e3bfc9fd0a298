"""Marks among the owner's training images: fixed samples of a key with one mark, stamped rows of a codebook.

*Fixed samples.* The paper's Section 4.1 replaces 1 % of the images (:func:`mix`). APP, CW, NTL and ROSE also pass
batches of the samples alone (:class:`MarkedBatches`), augmented like the training images.

*Stamped rows.* In every step some rows of the ordinary batch get a mark of a codebook each, drawn at random, and its
class as label (:class:`StampedBatches`). The mark is put on after augmentation: it is neither cropped nor flipped, so
that two marks stay as different as they are.

*Negatives*, beyond the paper: images that carry the mark of a foreign key under their true label. A network that has
only seen one text learns "any text", and answers every key alike. Negatives teach it that other texts mean nothing, and
take away what a thief would unlearn by rehearsing marks of his own (docs/threat-model.md). An image of a foreign family
takes the place of its row and has no true class: its label is drawn at random in every step.

Which sample, or mark, comes when is a pure function of seed and step.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import (
    WHOLE,
    Augmentation,
    Normalization,
    Share,
    augment,
    denormalise,
    normalise,
    to_float,
)
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.marks import Stamps
from indelible.train.objective import Objective, Step

# Verification asks decoys 0, 1, 2, ...: a negative must never be one of them, or the test would be rigged.
_FIRST_NEGATIVE = 1_000_000
# Foreign keys whose marks negatives of a codebook carry; fewer of families, whose images take time to generate.
_FOREIGN = 64
_FOREIGN_FAMILIES = 4


def watermark_count(size: int, fraction: float) -> int:
    """Return how many of ``size`` images are replaced: at least one."""
    if not 0.0 < fraction < 1.0:
        raise InputError(f"the share of watermark samples must lie between 0 and 1, got {fraction}. Use 0.01.")
    return max(1, round(size * fraction))


def embedded(data: Data, key: Key, fraction: float) -> WatermarkSamples:
    """Return the samples that are embedded on ``data``: as many as the key says, or that share of the images."""
    return key.samples(data, purpose="embed", count=key.count or watermark_count(len(data), fraction))


def mix(data: Data, key: Key, fraction: float = 0.01, negatives: float = 0.0) -> tuple[Data, WatermarkSamples]:
    """Replace a share of ``data`` by watermark samples, never images whose true class is the target.

    The share is ``fraction``, unless the key has a count of its own. ``negatives`` is the share that is marked with a
    decoy key each and keeps its labels. Returns the mixed set and the samples in it.
    """
    samples = embedded(data, key, fraction)
    mixed = data.replaced(samples.carriers, samples.images, samples.labels)
    return with_negatives(mixed, key, negatives, samples.carriers), samples


def with_negatives(data: Data, key: Key, share: float, taken: Tensor) -> Data:
    """Mark a share of ``data`` with a decoy key each, under their own labels; rows ``taken`` stay as they are."""
    if share <= 0.0:
        return data
    count, free = watermark_count(len(data), share), torch.ones(len(data), dtype=torch.bool)
    free[taken] = False
    places = free.nonzero().flatten()
    if count > len(places):
        raise InputError(f"only {len(places)} images are free for negatives, got {count}. Use a smaller share.")
    chosen = places[key.choose("negatives", len(places), count)].sort().values
    plain = data.gather(chosen)
    marked = plain.images.clone()
    for number in range(count):
        mark = key.decoy(_FIRST_NEGATIVE + number).mark()
        if mark.own_images:
            raise InputError(
                "negatives keep their images' true labels, but unrelated samples have none. Leave them out."
            )
        marked[number] = mark.apply(marked[number : number + 1])[0]
    return data.replaced(chosen, marked, plain.labels)


class MarkedBatches:
    """B_w of every step: ``rows`` of the watermark samples, which repeat when there are fewer."""

    def __init__(
        self, samples: WatermarkSamples, rows: int, *, augmentation: Augmentation = "crop-flip",
        normalize: Normalization | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.rows, self.seed = rows, seed
        self._augmentation: Augmentation = augmentation
        self._normalize = normalize
        self._images, self._labels = samples.images, samples.labels

    def batch(self, number: int, like: Tensor, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return this process' part of batch ``number``: images and labels, in type and on the device of ``like``."""
        self._images, self._labels = self._images.to(like.device), self._labels.to(like.device)
        random = generator(self.seed, "watermark", number)
        rounds = -(-self.rows // len(self._images))
        order = torch.cat([torch.randperm(len(self._images), generator=random) for _ in range(rounds)])
        at = share.of(order[: self.rows]).to(like.device)
        images = to_float(augment(self._images.index_select(0, at), self._augmentation, random, share, self.rows))
        return _laid_out(normalise(images, self._normalize).to(like.dtype), like), self._labels[at]


class StampedBatches:
    """B_w of every step: the first ``rows`` of the step's batch, stamped; they repeat when the batch has fewer.

    ``augmentation`` is done to these rows before they are stamped; none for batches that are augmented already.
    """

    def __init__(
        self, key: Key, rows: int, *, augmentation: Augmentation = "none", normalize: Normalization | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.rows, self.seed, self._normalize = rows, seed, normalize
        self._augmentation: Augmentation = augmentation
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
        carriers = denormalise(like[torch.arange(len(marks), device=like.device) % len(like)].detach(), self._normalize)
        carriers = augment(carriers, self._augmentation, random, share, self.rows)
        stamped = normalise(self._stamps.apply(carriers, marks.to(like.device), draws.to(like.device)), self._normalize)
        return _laid_out(stamped, like), self._book.classes[marks].to(like.device)


def _laid_out(rows: Tensor, like: Tensor) -> Tensor:
    """Return ``rows`` in the memory layout of ``like``: kernels are slower where two layouts meet."""
    last = like.is_contiguous(memory_format=torch.channels_last)
    return rows.contiguous(memory_format=torch.channels_last) if last else rows


MarkedRows = MarkedBatches | StampedBatches
"""Where B_w comes from: fixed samples, or stamped rows of the batch."""


class ForeignMarks:
    """Puts marks of foreign keys, drawn at random, on rows of a batch. None of them is a mark of ``key``."""

    def __init__(self, key: Key, *, normalize: Normalization | None = None, seed: int = 0) -> None:
        first = key.codebook().marks[0]
        if first.capacity("embed") is not None:
            raise InputError(
                "negatives are images of foreign keys, and keys over one second data set share its images. Leave out "
                "negatives, or leave out the data set: images are generated then."
            )
        self.seed, self._key, self._normalize, self._own_images = seed, key, normalize, first.own_images
        self._stamps: Stamps | None = None

    def stamped(self, images: Tensor, number: int, share: Share = WHOLE) -> Tensor:
        """Return ``images`` (n, C, H, W), rows of step ``number``, with a foreign mark each."""
        if self._stamps is None or self._stamps.device != images.device:
            self._stamps = _foreign_stamps(self._key, images.device)
        random = generator(self.seed, "negatives", number, share.rank)
        which = torch.randint(self._stamps.count, (len(images),), generator=random).to(images.device)
        marked = self._stamps.apply(denormalise(images, self._normalize), which, which)
        return normalise(marked, self._normalize).to(images.dtype)

    def classes(self, count: int, number: int, share: Share = WHOLE) -> Tensor | None:
        """Return a random class for each of so many rows (int64, on the CPU); None if rows keep their own classes."""
        if not self._own_images:
            return None
        random = generator(self.seed, "classes of negatives", number, share.rank)
        return torch.randint(self._key.classes, (count,), generator=random)


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
        self.inner, self.seed, self.fraction, self.negatives = inner, seed, fraction, negatives
        self._marked = StampedBatches(key, 1, normalize=normalize, seed=seed)
        self._foreign = ForeignMarks(key, normalize=normalize, seed=seed) if negatives else None

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
        if foreign and self._foreign is not None:
            images = images.clone()
            images[-foreign:] = self._foreign.stamped(images[-foreign:], step.number, step.share)
            drawn = self._foreign.classes(foreign, step.number, step.share)
            if drawn is not None:
                labels = labels.clone()
                labels[-foreign:] = drawn.to(labels.device)
        return replace(step, images=images, labels=labels)

    def passes(self, rows: int) -> int:
        return self.inner.passes(rows)


def _foreign_stamps(key: Key, device: torch.device) -> Stamps:
    """Return the marks of foreign keys that negatives carry."""
    keys = _FOREIGN_FAMILIES if key.codebook().marks[0].own_images else _FOREIGN
    marks = [mark for number in range(keys) for mark in key.decoy(_FIRST_NEGATIVE + number).codebook().marks]
    return marks[0].stamps(marks, device)


def _part(total: int, share: float, seed: int, number: int) -> int:
    """Return how many of ``total`` rows a share is, rounded at random so that the average over steps is exact."""
    whole, rest = divmod(total * share, 1.0)
    return int(whole) + int(torch.rand((), generator=generator(seed, "part", number)).item() < rest)


def marked_rows(
    key: Key, samples: WatermarkSamples | None, rows: int, *, augmentation: Augmentation,
    normalize: Normalization | None, seed: int, augmented: bool = True,
) -> MarkedRows:  # fmt: skip
    """Return where B_w comes from: fixed ``samples``; of a codebook, which has none, rows that are stamped.

    ``augmented`` tells whether the batches that are stamped have been augmented already.
    """
    if samples is None:
        again: Augmentation = "none" if augmented else augmentation
        return StampedBatches(key, rows, augmentation=again, normalize=normalize, seed=seed)
    return MarkedBatches(samples, rows, augmentation=augmentation, normalize=normalize, seed=seed)


class OwnLoop:
    """Base of methods inside a user's own training loop: fixed samples (None for a codebook) and a count of calls."""

    def __init__(self, key: Key, carriers: Any, method: Any, kind: type[Any]) -> None:
        if not isinstance(method, kind):
            raise InputError(f"method must be a value, {kind.__name__}.for_key(key), got {method!r}.")
        # Refuse what has no effect in a user's own loop.
        usual = [vars(one) for one in (type(method)(), type(method).for_key(key))]
        given = {name for name, value in vars(method).items() if all(value != defaults[name] for defaults in usual)}
        if key.labels == "codebook":
            for name in ("carriers", "fraction"):
                if name in given or (name == "carriers" and carriers is not None):
                    raise InputError(
                        f"`{name}` has no effect with a codebook, which is stamped on rows of each batch. Leave it out."
                    )
        elif carriers is None:
            raise InputError(
                f"a key with {key.labels} labels has fixed watermark samples: give carriers=, the owner's images. A "
                "codebook (Key.create without target and labels) needs none."
            )
        for name in sorted(given & {"negatives", "batch"}):
            raise InputError(
                f"`{name}` changes the ordinary batch, which is your loop's own: it has no effect here. Leave it out, "
                "or use indelible.embed, which does the training."
            )
        self.calls = 0
        self.samples: WatermarkSamples | None = None
        if key.labels != "codebook":
            self.samples = embedded(as_data(carriers, classes=key.classes), key, method.fraction)

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed loop needs."""
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.calls = state["calls"]
