"""The one loop that everything that trains goes through, with its settings, checkpoints, history and evaluation."""

from indelible.train.fit import fit
from indelible.train.loop import Fitted
from indelible.train.objective import CrossEntropy, Objective
from indelible.train.schedule import Schedule
from indelible.train.settings import TrainSettings

__all__ = ["CrossEntropy", "Fitted", "Objective", "Schedule", "TrainSettings", "fit"]
