"""Scales of a run: ``cpu``, which a few cores finish, and ``paper``, the paper's number of passes.

For embedding a scale is a set of training settings. ``paper``: Section 4.1 - 100 epochs of SGD at 0.1, times 0.1 at
epochs 50 and 75. On two CPU cores ResNet-18 would take days; it is meant for a GPU. ``cpu``: 12 epochs of one cycle in
batches of 64, for the small ResNets on some thousand images.

Methods and attacks that depend on the number of steps also change their own settings at ``cpu`` (``cpu_settings`` of
their classes).

Each scale has a short form for a model that is trained already (``start="trained"``): fewer epochs of one cycle that
peaks at half the rate. docs/protect-trained.md shows what a shorter or gentler run gives up on a CPU; the form of
``paper`` has not been measured.
"""

from dataclasses import dataclass
from typing import Literal

from indelible.base.errors import UnknownNameError
from indelible.base.registry import Registry
from indelible.train.settings import Schedule, TrainSettings

Start = Literal["scratch", "trained"]
STARTS: tuple[Start, ...] = ("scratch", "trained")


@dataclass(frozen=True)
class TrainingScale:
    """Training settings of a scale."""

    name: str
    summary: str
    settings: TrainSettings
    trained: TrainSettings  # for a model that is trained already

    def start(self, start: Start) -> TrainSettings:
        """Return the settings for a fresh network (``"scratch"``) or for one that is trained already."""
        if start not in STARTS:
            raise UnknownNameError("start", start, STARTS)
        return self.trained if start == "trained" else self.settings


SCALES: Registry[TrainingScale] = Registry("scale")
SCALES.add(
    TrainingScale(
        "cpu",
        "a one-cycle run for small networks on a few cores",
        TrainSettings(epochs=12, batch_size=64, schedule=Schedule.one_cycle(), evaluate_every=4),
        TrainSettings(epochs=10, batch_size=64, lr=0.05, schedule=Schedule.one_cycle(), evaluate_every=2),
    )
)
SCALES.add(
    TrainingScale(
        "paper",
        "the paper's 100 epochs; a GPU job",
        TrainSettings(),
        TrainSettings(epochs=20, lr=0.05, schedule=Schedule.one_cycle()),
    )
)
