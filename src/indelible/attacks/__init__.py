"""Try to remove a watermark: one file per removal attack."""

from indelible.attacks.base import ATTACKS, Attacked, RemovalAttack, attack
from indelible.attacks.curve import Curve, evaluate_curve

# The order of registration is the order of the paper's tables; what the paper has not comes after.
from indelible.attacks.ft import FineTuning  # isort: skip
from indelible.attacks.fp import FinePruning  # isort: skip
from indelible.attacks.anp import AdversarialNeuronPruning  # isort: skip
from indelible.attacks.nad import NeuralAttentionDistillation  # isort: skip
from indelible.attacks.mcr import ModeConnectivityRepair  # isort: skip
from indelible.attacks.nnl import NeuralNetworkLaundering  # isort: skip
from indelible.attacks.distill import Extraction  # isort: skip
from indelible.attacks.preprocess import InputPreprocessing, Preprocessed, deployed, evaluate_transforms  # isort: skip
from indelible.attacks.clp import ChannelLipschitzness  # isort: skip
from indelible.attacks.bnp import BatchNormPruning  # isort: skip
from indelible.attacks.magnitude import MagnitudePruning  # isort: skip
from indelible.attacks.quantise import Quantisation  # isort: skip
from indelible.attacks.weight_noise import WeightNoise  # isort: skip
from indelible.attacks.overwrite import Overwriting  # isort: skip

# Attacks on backdoors that came later, by year.
from indelible.attacks.i_bau import ImplicitUnlearning  # isort: skip
from indelible.attacks.super_ft import SuperFineTuning  # isort: skip
from indelible.attacks.ft_sam import SharpnessAwareFineTuning  # isort: skip
from indelible.attacks.rnp import ReconstructiveNeuronPruning  # isort: skip
from indelible.attacks.fst import FeatureShiftTuning  # isort: skip
from indelible.attacks.sau import SharedAdversarialUnlearning  # isort: skip

# Made for this package's own marks.
from indelible.attacks.rehearse import Rehearsal  # isort: skip
from indelible.attacks.invert import Inversion  # isort: skip

__all__ = [
    "ATTACKS",
    "AdversarialNeuronPruning",
    "Attacked",
    "BatchNormPruning",
    "ChannelLipschitzness",
    "Curve",
    "Extraction",
    "FeatureShiftTuning",
    "FinePruning",
    "FineTuning",
    "ImplicitUnlearning",
    "InputPreprocessing",
    "Inversion",
    "MagnitudePruning",
    "ModeConnectivityRepair",
    "NeuralAttentionDistillation",
    "NeuralNetworkLaundering",
    "Overwriting",
    "Preprocessed",
    "Quantisation",
    "ReconstructiveNeuronPruning",
    "Rehearsal",
    "RemovalAttack",
    "SharedAdversarialUnlearning",
    "SharpnessAwareFineTuning",
    "SuperFineTuning",
    "WeightNoise",
    "attack",
    "deployed",
    "evaluate_curve",
    "evaluate_transforms",
]
