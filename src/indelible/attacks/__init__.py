"""Try to remove a watermark: one file per removal attack."""

from indelible.attacks.base import ATTACKS, BUDGETS, Attacked, RemovalAttack, attack, settings_of
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

__all__ = [
    "ATTACKS",
    "BUDGETS",
    "AdversarialNeuronPruning",
    "Attacked",
    "BatchNormPruning",
    "ChannelLipschitzness",
    "Curve",
    "Extraction",
    "FinePruning",
    "FineTuning",
    "InputPreprocessing",
    "MagnitudePruning",
    "ModeConnectivityRepair",
    "NeuralAttentionDistillation",
    "NeuralNetworkLaundering",
    "Overwriting",
    "Preprocessed",
    "Quantisation",
    "RemovalAttack",
    "WeightNoise",
    "attack",
    "deployed",
    "evaluate_curve",
    "evaluate_transforms",
    "settings_of",
]
