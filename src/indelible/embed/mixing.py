"""The owner's training set with watermark samples in it (the paper's Section 4.1: 1 % of the images are replaced).

Beyond the paper: *negatives*, images that carry the mark of a decoy key under their own, true label. A network that has
only seen one text learns "any text", answers every key alike, and then no test can tell whose mark it is. Negatives
make the mark the key's own. They cost nothing and are off by default, as in the paper.
"""

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.unrelated import UnrelatedMark

__all__ = ["embedded", "mix", "watermark_count", "with_negatives"]

# Verification asks decoys 0, 1, 2, ...: a negative must never be one of them, or the test would be rigged.
_FIRST_NEGATIVE = 1_000_000


def watermark_count(size: int, fraction: float) -> int:
    """Return how many of ``size`` images are replaced: at least one."""
    if not 0.0 < fraction < 1.0:
        raise InputError(f"the share of watermark samples must lie between 0 and 1, but is {fraction}. Use 0.01.")
    return max(1, round(size * fraction))


def embedded(data: Data, key: Key, fraction: float) -> WatermarkSamples:
    """Return the samples that are embedded on ``data``: as many as the key says, or that share of the images."""
    return key.samples(data, purpose="embed", count=key.count or watermark_count(len(data), fraction))


def mix(data: Data, key: Key, fraction: float = 0.01, negatives: float = 0.0) -> tuple[Data, WatermarkSamples]:
    """Replace a share of ``data`` by watermark samples, never images whose true class is the target.

    Args:
        data: The owner's images.
        key: The owner's key.
        fraction: Share of the images that watermark samples replace, unless the key has a count of its own.
        negatives: Share of the images that are marked with a decoy key each and keep their labels.

    Returns:
        The mixed set, and the samples that were embedded in it.
    """
    samples = embedded(data, key, fraction)
    mixed = data.replaced(samples.carriers, samples.images, samples.labels)
    return with_negatives(mixed, key, negatives, samples.carriers), samples


def with_negatives(data: Data, key: Key, share: float, taken: Tensor) -> Data:
    """Mark a share of ``data`` with a decoy key each, under their own labels.

    Args:
        data: The owner's images.
        key: The owner's key.
        share: How many of them; 0 leaves all as they are.
        taken: int64 (n,), rows that must stay as they are.
    """
    if share <= 0.0:
        return data
    count, free = watermark_count(len(data), share), torch.ones(len(data), dtype=torch.bool)
    free[taken] = False
    places = free.nonzero().flatten()
    if count > len(places):
        raise InputError(f"{count} negatives are wanted, but only {len(places)} images are free. Ask for fewer.")
    chosen = places[key.choose("negatives", len(places), count)].sort().values
    plain = data.gather(chosen)
    marked = plain.images.clone()
    for number in range(count):
        mark = key.decoy(_FIRST_NEGATIVE + number).mark()
        if isinstance(mark, UnrelatedMark):
            raise InputError(
                "negatives keep their images' true labels, but unrelated samples have none. Leave them out."
            )
        marked[number] = mark.apply(marked[number : number + 1])[0]
    return data.replaced(chosen, marked, plain.labels)
