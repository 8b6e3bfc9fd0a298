"""Secret -> key -> watermark samples. One file per kind of mark."""

from indelible.keys.content import ContentMark as ContentMark
from indelible.keys.key import Key as Key
from indelible.keys.marks import MARKS as MARKS
from indelible.keys.marks import Mark as Mark
from indelible.keys.noise import NoiseMark as NoiseMark
from indelible.keys.samples import WatermarkSamples as WatermarkSamples
from indelible.keys.unrelated import UnrelatedMark as UnrelatedMark
