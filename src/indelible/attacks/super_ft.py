"""Super-fine-tuning: learning rates that climb and fall in triangles, large ones first and small ones then.

Paper: Sha, He, Berrang, Humbert, Zhang, "Fine-Tuning Is All You Need to Mitigate Backdoor Attacks", 2022
(arXiv:2212.09067), the section on super-fine-tuning.

    rate(s) = base + (peak - base) * (1 - |2 p - 1|),   p = (s mod cycle) / cycle,   s: steps in the phase

| symbol | name | default | source |
|---|---|---|---|
| peak, first phase (LR_MAX1) | ``peak`` | by budget: 0.03, 0.1, 0.3 | 0.1 as the paper is quoted; others ours |
| peak, second phase (LR_MAX2) | ``second_peak`` | 0.001 | as the paper is quoted |
| base (LR_BASE) | ``base`` | 3e-4 | as the paper is quoted |
| cycle | ``cycle`` | 20 steps | a public re-implementation: 10 steps up and 10 down |

All settings and how it differs: docs/attacks/super-ft.md.
"""

from dataclasses import dataclass

from torch import nn

from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.attacks.strengths import TrainedStrength
from indelible.base.errors import InputError
from indelible.data.batches import Batches
from indelible.data.images import Data
from indelible.train import Schedule

PEAKS = (0.03, 0.1, 0.3)


def triangle(at: float, *, base: float, peak: float, cycle: float) -> float:
    """Return the rate ``at`` a moment: ``base`` at 0 and at ``cycle``, ``peak`` halfway, and so on again."""
    return base + (peak - base) * (1.0 - abs(2.0 * (at % cycle) / cycle - 1.0))


@dataclass(frozen=True, kw_only=True)
class Triangles(Schedule):
    """Two phases of triangles, as factors of the first peak; ``cycle`` is in epochs, ``share`` the first phase's."""

    base: float
    peak: float
    second_peak: float
    cycle: float
    share: float

    def factor(self, epoch: float, total: float) -> float:
        begun = self.share * total
        at, peak = (epoch, self.peak) if epoch < begun else (epoch - begun, self.second_peak)
        return triangle(at, base=self.base, peak=peak, cycle=self.cycle) / self.peak


@ATTACKS.register(
    name="super-ft",
    title="Super-fine-tuning",
    paper="Sha et al., 2022",
    summary="Fine-tune at learning rates that climb and fall in triangles, large ones first, small ones then.",
    cost="30 epochs of the attacker's images for each of three peaks",
)
@dataclass(frozen=True, kw_only=True)
class SuperFineTuning(TrainedStrength):
    """Fine-tune at cyclic rates; docs/attacks/super-ft.md explains each setting."""

    strength = "peak"
    strengths = PEAKS
    cpu_settings = {"epochs": 6}
    ranges = {"cycle": "[2, inf)", "share": "(0, 1)"}

    peak: float | None = None
    second_peak: float = 0.001
    base: float = 3e-4
    cycle: int = 20
    share: float = 0.4
    epochs: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest = min(PEAKS) if self.peak is None else self.peak
        if not 0.0 < self.base <= self.second_peak <= lowest:
            raise InputError(
                f"rates must have 0 < base <= second_peak <= peak, got base={self.base:g}, "
                f"second_peak={self.second_peak:g}, peak={lowest:g}. The paper uses 3e-4, 0.001 and 0.1."
            )

    def train(self, job: Removal, model: nn.Module, value: float, data: Data) -> None:
        """Fine-tune with triangles up to the first peak ``value``."""
        steps = Batches(data=data, batch_size=self.batch_size, seed=job.seed).steps
        schedule = Triangles(
            base=self.base, peak=value, second_peak=self.second_peak, cycle=self.cycle / steps, share=self.share
        )
        settings = self.training(lr=value, schedule=schedule)
        job.train(settings, phase=f"fine-tuning, peak {value:g}", data=data, model=model)
