"""Secret -> key -> watermark samples. One file per kind of mark; the store keeps a key with its digest."""

from indelible.keys.content import ContentMark
from indelible.keys.key import Key
from indelible.keys.marks import MARKS, Mark
from indelible.keys.noise import NoiseMark
from indelible.keys.samples import WatermarkSamples
from indelible.keys.unrelated import UnrelatedMark

__all__ = ["MARKS", "ContentMark", "Key", "Mark", "NoiseMark", "UnrelatedMark", "WatermarkSamples"]
