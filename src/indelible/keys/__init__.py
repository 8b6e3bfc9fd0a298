"""Secret -> key -> watermark samples. One file per kind of mark; the store keeps a key with its digest."""

from indelible.keys.key import Key
from indelible.keys.samples import WatermarkSamples

__all__ = ["Key", "WatermarkSamples"]
