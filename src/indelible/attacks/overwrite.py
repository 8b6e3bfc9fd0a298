"""Overwriting: the thief embeds a mark of their own while fine-tuning, in the hope that it displaces the owner's.

Papers: Uchida et al., "Embedding Watermarks into Deep Neural Networks", ICMR 2017 (overwriting); Lukas et al., "SoK:
How Robust is Image Classification Deep Neural Network Watermarking?", S&P 2022.

    min_theta  L(theta, D_a + D_own)        D_a: the attacker's images, D_own: some of them with the thief's mark

| symbol | name | default | source |
|---|---|---|---|
| |D_own| / |D_a| | ``fraction`` | 0.05 | ours: as many marks as an owner's 1 % of five times the images |

All settings, and how the thief's key is drawn: docs/attacks/overwrite.md.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from indelible.attacks.ft import FineTuning
from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.base.seeding import generator
from indelible.data.images import ImageData
from indelible.embedding.mixing import mix
from indelible.keys.key import Key
from indelible.train import Schedule

Kind = Literal["content", "noise", "unrelated"]


def own_key(seed: int, kind: Kind, classes: int, shape: tuple[int, int, int]) -> Key:
    """Return the thief's own key: a target class and a secret drawn from the run's seed."""
    random = generator(seed, "overwrite")
    target = int(torch.randint(classes, (1,), generator=random))
    secret = bytes(torch.randint(256, (32,), generator=random).tolist())
    return Key.create(kind=kind, classes=classes, shape=shape, target=target, secret=secret)


@ATTACKS.register(
    name="overwrite",
    title="Overwriting",
    paper="Uchida et al., ICMR 2017; Lukas et al., S&P 2022",
    summary="Fine-tune on the attacker's images with a mark of the attacker's own on some of them.",
    cost="30 epochs of the attacker's images",
)
@dataclass(frozen=True, kw_only=True)
class Overwriting(FineTuning):
    """Fine-tune on own images with an own mark among them; docs/attacks/overwrite.md explains each setting."""

    ranges = {"fraction": "(0, 1)"}

    kind: Kind = "content"
    fraction: float = 0.05

    def run(self, job: Removal) -> None:
        """Draw a key, mark some images with it, fine-tune on all."""
        key = own_key(job.seed, self.kind, len(job.data.classes), job.data.shape)
        mixed, samples = mix(job.data, key, self.fraction)
        job.train(self.training(schedule=Schedule.every(self.every, self.gamma)), phase="overwriting", data=mixed)
        marks = ImageData(samples.images, samples.labels, job.data.classes, "own marks")
        # How well the thief's own mark took: a weak one displaces nothing.
        job.note(own_target=key.target, own_marks=len(marks), own_rate=job.accuracy(job.model, marks))
