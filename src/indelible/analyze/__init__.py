"""Analyse marked models: the numbers behind the paper's figures, and some of our own.

Each function takes any model and returns a frozen result; ``write_analysis`` keeps it, and
:func:`indelible.report.figures.write_figure` draws it.
"""

from indelible.analyze.analysis import ANALYSES as ANALYSES
from indelible.analyze.analysis import Analysis as Analysis
from indelible.analyze.analysis import read_analysis as read_analysis
from indelible.analyze.analysis import write_analysis as write_analysis
from indelible.analyze.batchnorm_distances import Batchnorm as Batchnorm
from indelible.analyze.batchnorm_distances import BatchNormSettings as BatchNormSettings
from indelible.analyze.batchnorm_distances import batchnorm as batchnorm
from indelible.analyze.benchmark_curves import Curves as Curves
from indelible.analyze.benchmark_curves import curves as curves
from indelible.analyze.mark_pictures import Samples as Samples
from indelible.analyze.mark_pictures import SamplesSettings as SamplesSettings
from indelible.analyze.mark_pictures import samples as samples
from indelible.analyze.marked_model import MarkedModel as MarkedModel
from indelible.analyze.weight_landscape import Landscape as Landscape
from indelible.analyze.weight_landscape import LandscapeSettings as LandscapeSettings
from indelible.analyze.weight_landscape import landscape as landscape
from indelible.bench.measurement import Measurement as Measurement
from indelible.bench.measurement import read_measurements as read_measurements
