"""Analyse marked models: the numbers behind the paper's figures, and some of our own.

Each function takes any model and returns a frozen result; ``write_analysis`` keeps it, and
:func:`indelible.report.figures.write_figure` draws it.
"""

from indelible.analyze.analysis import ANALYSES, Analysis, read_analysis, write_analysis
from indelible.analyze.batchnorm import Batchnorm, BatchNormSettings, batchnorm
from indelible.analyze.benchmark_curves import Curves, curves
from indelible.analyze.landscape import Landscape, LandscapeSettings, landscape
from indelible.analyze.mark_pictures import Samples, SamplesSettings, samples
from indelible.analyze.marked_model import MarkedModel
from indelible.analyze.tsne import Tsne, TsneSettings, tsne
from indelible.bench.measurement import Measurement, read_measurements

__all__ = [
    "ANALYSES",
    "Analysis",
    "BatchNormSettings",
    "Batchnorm",
    "Curves",
    "Landscape",
    "LandscapeSettings",
    "MarkedModel",
    "Measurement",
    "Samples",
    "SamplesSettings",
    "Tsne",
    "TsneSettings",
    "batchnorm",
    "curves",
    "landscape",
    "read_analysis",
    "read_measurements",
    "samples",
    "tsne",
    "write_analysis",
]
