"""Presets of training settings: the paper's protocol, and one that a CPU can finish.

``paper``: Section 4.1 - 100 epochs of SGD at 0.1, times 0.1 at epochs 50 and 75. On two CPU cores ResNet-18 would take
days; it is meant for a GPU.

``cpu``: 12 epochs of one cycle at a higher peak rate, for the small ResNets. Methods that depend on the number of steps
scale themselves (:attr:`~indelible.embed.base.EmbeddingMethod.cpu_settings`).
"""

from dataclasses import dataclass

from indelible.base.registry import Registry
from indelible.train.schedule import Schedule
from indelible.train.settings import TrainSettings

__all__ = ["PRESETS", "Preset"]


@dataclass(frozen=True)
class Preset:
    """Training settings under a name.

    Attributes:
        name: The name on the command line.
        summary: What it is for.
        settings: How to train.
    """

    name: str
    summary: str
    settings: TrainSettings


PRESETS: Registry[Preset] = Registry("preset")
PRESETS.add(Preset("paper", "the paper's 100 epochs; a GPU job", TrainSettings()))
PRESETS.add(
    Preset(
        "cpu",
        "a one-cycle run for small networks on a few cores",
        TrainSettings(epochs=12, lr=0.2, schedule=Schedule.one_cycle(), evaluate_every=4),
    )
)
