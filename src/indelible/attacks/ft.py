"""FT: fine-tuning, the plainest removal attack and, at a medium learning rate, already a strong one.

Paper: Uchida et al., "Embedding Watermarks into Deep Neural Networks", ICMR 2017; settings of the ICCV 2023 paper,
Section 4.1 and Appendix B.4, each with its source in docs/attacks/ft.md. Protocol ``paper`` does not augment.
"""

from dataclasses import dataclass

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.train import Schedule


@ATTACKS.register(
    name="ft",
    title="Fine-tuning",
    paper="Uchida et al., ICMR 2017",
    summary="Go on training on the attacker's own clean images at a medium learning rate.",
    cost="30 epochs of the attacker's images",
)
@dataclass(frozen=True, kw_only=True)
class FineTuning(RemovalAttack):
    """Go on training on the attacker's images; docs/attacks/ft.md explains each setting."""

    only_trains = True
    cpu_settings = {"epochs": 15, "every": 4}

    epochs: int = 30
    lr: float = 0.05
    every: float = 5
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128

    def passes(self, images: float, classes: int) -> float:
        return images * self.epochs

    def run(self, job: Removal) -> None:
        """Fine-tune all parameters."""
        job.train(self.training(schedule=Schedule.every(self.every, self.gamma)), phase="fine-tuning")
