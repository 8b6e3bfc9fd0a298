"""Extraction by distillation: a new network that learns from the stolen one's answers only.

Papers: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; as an attack on watermarks: Shafieinejad et
al., "On the Robustness of Backdoor-based Watermarking in Deep Neural Networks", IH&MMSec 2021.

    soft:  T^2 KL( softmax(f(x) / T) || softmax(g(x) / T) )        hard:  CE( argmax f(x), g(x) )

f is the stolen model, g the student, which starts from nothing. No label of the attacker's images is used.

| symbol | name | default | source |
|---|---|---|---|
| T | ``temperature`` | 4 | within Hinton's 2.5 to 4 for small networks |

All settings, and images of another domain: docs/attacks/distill.md.
"""

import copy
from dataclasses import dataclass
from typing import Literal

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.base.seeding import derive_seed
from indelible.models import build_model
from indelible.nn.surgery import fresh_copy
from indelible.train import Schedule
from indelible.train.evaluate import check_classifier
from indelible.train.objective import Distillation


@ATTACKS.register(
    name="distill",
    title="Extraction by distillation",
    paper="Hinton et al., 2015; Shafieinejad et al., IH&MMSec 2021",
    summary="Train a new network, of the same or another architecture, on the stolen model's answers.",
    cost="100 epochs of the attacker's images, by teacher and student",
)
@dataclass(frozen=True, kw_only=True)
class Extraction(RemovalAttack):
    """Train a student from nothing on the stolen model's answers; docs/attacks/distill.md explains each setting."""

    cpu_settings = {"epochs": 12}
    needs_labels = False
    only_trains = True
    ranges = {"temperature": "(0, inf)"}

    labels: Literal["soft", "hard"] = "soft"
    temperature: float = 4.0
    architecture: str | None = None
    epochs: int = 100
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128

    def passes(self, images: float, classes: int) -> float:
        return images * self.epochs

    def run(self, job: Removal) -> None:
        """Build the student and train it."""
        teacher = copy.deepcopy(job.model)
        seed = derive_seed(job.seed, "student")
        if self.architecture is None:
            student = fresh_copy(job.model, seed)
        else:
            answers = check_classifier(teacher, job.data, normalize=job.normalize, labelled=False)
            student = build_model(self.architecture, classes=answers, shape=job.data.shape, seed=seed)
            check_classifier(student, job.data, normalize=job.normalize, labelled=False)
        job.train(
            self.training(schedule=Schedule.milestones(self.epochs / 2, 3 * self.epochs / 4)),
            phase="distillation", model=student,
            objective=Distillation(teacher, hard=self.labels == "hard", temperature=self.temperature),
        )  # fmt: skip
        job.model, job.architecture = student, self.architecture
