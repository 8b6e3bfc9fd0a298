"""The training loop that all methods and attacks share, with its settings, checkpoints, history and evaluation."""

from indelible.train.fit_and_watch import fit as fit
from indelible.train.loop import Fitted as Fitted
from indelible.train.objective import CrossEntropy as CrossEntropy
from indelible.train.objective import Objective as Objective
from indelible.train.objective import Step as Step
from indelible.train.settings import Schedule as Schedule
from indelible.train.settings import TrainSettings as TrainSettings
