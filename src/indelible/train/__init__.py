"""The training loop that all methods and attacks share, with its settings, checkpoints, history and evaluation."""

from indelible.train.fit import fit
from indelible.train.loop import Fitted
from indelible.train.objective import CrossEntropy, Objective, Step
from indelible.train.settings import Schedule, TrainSettings

__all__ = ["CrossEntropy", "Fitted", "Objective", "Schedule", "Step", "TrainSettings", "fit"]
