"""Fixed watermark samples: among the owner's training images, and as batches of their own.

The paper's Section 4.1 replaces 1 % of the images (:func:`mix`). APP, CW, NTL and ROSE also pass batches of the samples
alone (:class:`MarkedBatches`), augmented like the training images, a pure function of seed and number.

Beyond the paper: *negatives*, images that carry the mark of a decoy key under their own, true label. A network that has
only seen one text learns "any text", answers every key alike, and then no test can tell whose mark it is. Negatives
make the mark the key's own. They cost nothing and are off by default, as in the paper.
"""

from typing import Protocol

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import WHOLE, Augmentation, Normalization, Share, augment, normalise, to_float
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples

# Verification asks decoys 0, 1, 2, ...: a negative must never be one of them, or the test would be rigged.
_FIRST_NEGATIVE = 1_000_000


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


class MarkedRows(Protocol):
    """Where B_w comes from: fixed samples (``MarkedBatches``), or stamped rows of the batch (``StampedBatches``)."""

    def batch(self, number: int, like: Tensor, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return this process' part of B_w of step ``number``, images and labels, for a batch ``like``."""
        ...


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
        return normalise(images, self._normalize).to(like.dtype), self._labels[at]
