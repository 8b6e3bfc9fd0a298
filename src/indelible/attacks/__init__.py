"""Try to remove a watermark: one file per removal attack."""

from indelible.attacks.curve import Curve as Curve
from indelible.attacks.curve import evaluate_curve as evaluate_curve
from indelible.attacks.removal_attack import ATTACKS as ATTACKS
from indelible.attacks.removal_attack import Attacked as Attacked
from indelible.attacks.removal_attack import RemovalAttack as RemovalAttack
from indelible.attacks.removal_attack import attack as attack

# The order of registration is the order of the paper's tables; what the paper has not comes after.
from indelible.attacks.ft import FineTuning as FineTuning  # isort: skip
from indelible.attacks.fp import FinePruning as FinePruning  # isort: skip
from indelible.attacks.anp import AdversarialNeuronPruning as AdversarialNeuronPruning  # isort: skip
from indelible.attacks.nad import NeuralAttentionDistillation as NeuralAttentionDistillation  # isort: skip
from indelible.attacks.mcr import ModeConnectivityRepair as ModeConnectivityRepair  # isort: skip
from indelible.attacks.nnl import NeuralNetworkLaundering as NeuralNetworkLaundering  # isort: skip
from indelible.attacks.distill import Extraction as Extraction  # isort: skip
from indelible.attacks.preprocess import InputPreprocessing as InputPreprocessing  # isort: skip
from indelible.attacks.preprocess import Preprocessed as Preprocessed  # isort: skip
from indelible.attacks.preprocess import deployed as deployed  # isort: skip
from indelible.attacks.preprocess import evaluate_transforms as evaluate_transforms  # isort: skip
from indelible.attacks.clp import ChannelLipschitzness as ChannelLipschitzness  # isort: skip
from indelible.attacks.bnp import BatchNormPruning as BatchNormPruning  # isort: skip
from indelible.attacks.magnitude import MagnitudePruning as MagnitudePruning  # isort: skip
from indelible.attacks.quantise import Quantisation as Quantisation  # isort: skip
from indelible.attacks.weight_noise import WeightNoise as WeightNoise  # isort: skip
from indelible.attacks.overwrite import Overwriting as Overwriting  # isort: skip

# Attacks on backdoors that came later, by year.
from indelible.attacks.i_bau import ImplicitUnlearning as ImplicitUnlearning  # isort: skip
from indelible.attacks.super_ft import SuperFineTuning as SuperFineTuning  # isort: skip
from indelible.attacks.ft_sam import SharpnessAwareFineTuning as SharpnessAwareFineTuning  # isort: skip
from indelible.attacks.rnp import ReconstructiveNeuronPruning as ReconstructiveNeuronPruning  # isort: skip
from indelible.attacks.fst import FeatureShiftTuning as FeatureShiftTuning  # isort: skip
from indelible.attacks.sau import SharedAdversarialUnlearning as SharedAdversarialUnlearning  # isort: skip

# Made for this package's own marks.
from indelible.attacks.rehearse import Rehearsal as Rehearsal  # isort: skip
from indelible.attacks.invert import Inversion as Inversion  # isort: skip
