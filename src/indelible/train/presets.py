"""Presets of training settings: the paper's protocol, and one that a CPU can finish.

``paper``: Section 4.1 - 100 epochs of SGD at 0.1, times 0.1 at epochs 50 and 75. On two CPU cores ResNet-18 would take
days; it is meant for a GPU.

``cpu``: 12 epochs of one cycle in batches of 64, for the small ResNets on some thousand images. Methods that depend on
the number of steps scale themselves (:attr:`~indelible.embed.base.EmbeddingMethod.cpu_settings`).

Each has a short form for a model that is trained already (``start="trained"``): fewer epochs of one cycle that peaks at
half the rate. docs/protect-trained.md shows what a shorter or gentler run gives up on a CPU; the form of ``paper`` has
not been measured.
"""

from dataclasses import dataclass
from typing import Literal

from indelible.base.errors import UnknownNameError
from indelible.base.registry import Registry
from indelible.train.schedule import Schedule
from indelible.train.settings import TrainSettings

__all__ = ["PRESETS", "STARTS", "Preset", "Start"]

Start = Literal["scratch", "trained"]
STARTS: tuple[Start, ...] = ("scratch", "trained")


@dataclass(frozen=True)
class Preset:
    """Training settings under a name.

    Attributes:
        name: The name on the command line.
        summary: What it is for.
        settings: How to train.
        trained: How to train a model that is trained already.
    """

    name: str
    summary: str
    settings: TrainSettings
    trained: TrainSettings

    def start(self, start: Start) -> TrainSettings:
        """Return the settings for a fresh network (``"scratch"``) or for one that is trained already."""
        if start not in STARTS:
            raise UnknownNameError("start", start, STARTS)
        return self.trained if start == "trained" else self.settings


PRESETS: Registry[Preset] = Registry("preset")
PRESETS.add(
    Preset(
        "paper",
        "the paper's 100 epochs; a GPU job",
        TrainSettings(),
        TrainSettings(epochs=20, lr=0.05, schedule=Schedule.one_cycle()),
    )
)
PRESETS.add(
    Preset(
        "cpu",
        "a one-cycle run for small networks on a few cores",
        TrainSettings(epochs=12, batch_size=64, schedule=Schedule.one_cycle(), evaluate_every=4),
        TrainSettings(epochs=10, batch_size=64, lr=0.05, schedule=Schedule.one_cycle(), evaluate_every=2),
    )
)
