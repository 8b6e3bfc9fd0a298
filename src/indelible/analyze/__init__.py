"""Seeing why: the numbers behind the paper's figures, and some of our own.

Each function takes any model and returns a frozen result; ``write_analysis`` keeps it, and
:func:`indelible.report.figures.write_figure` draws it.
"""

from indelible.analyze.batchnorm import Batchnorm, BatchNormSettings, batchnorm
from indelible.analyze.curves import Curves, cells_of, cells_of_runs, curves
from indelible.analyze.document import Analysis, write_analysis
from indelible.analyze.dynamics import Dynamics, DynamicsSettings, dynamics
from indelible.analyze.frontier import Frontier, frontier
from indelible.analyze.kinds import ANALYSES, read_analysis
from indelible.analyze.landscape import Landscape, LandscapeSettings, landscape
from indelible.analyze.samples import Samples, SamplesSettings, samples
from indelible.analyze.subject import Subject
from indelible.analyze.tsne import Tsne, TsneSettings, tsne

__all__ = [
    "ANALYSES",
    "Analysis",
    "BatchNormSettings",
    "Batchnorm",
    "Curves",
    "Dynamics",
    "DynamicsSettings",
    "Frontier",
    "Landscape",
    "LandscapeSettings",
    "Samples",
    "SamplesSettings",
    "Subject",
    "Tsne",
    "TsneSettings",
    "batchnorm",
    "cells_of",
    "cells_of_runs",
    "curves",
    "dynamics",
    "frontier",
    "landscape",
    "read_analysis",
    "samples",
    "tsne",
    "write_analysis",
]
