"""The owner's training set with watermark samples in it (the paper's Section 4.1: 1 % of the images are replaced)."""

from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples

__all__ = ["mix", "watermark_count"]


def watermark_count(size: int, fraction: float) -> int:
    """Return how many of ``size`` images are replaced: at least one."""
    if not 0.0 < fraction < 1.0:
        raise InputError(f"the share of watermark samples must lie between 0 and 1, but is {fraction}. Use 0.01.")
    return max(1, round(size * fraction))


def mix(data: Data, key: Key, fraction: float = 0.01) -> tuple[Data, WatermarkSamples]:
    """Replace a share of ``data`` by watermark samples, never images whose true class is the target.

    Returns:
        The mixed set, and the samples that were embedded in it.
    """
    samples = key.samples(data, purpose="embed", count=watermark_count(len(data), fraction))
    return data.replaced(samples.carriers, samples.images, samples.labels), samples
