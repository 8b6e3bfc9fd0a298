"""Rehearsal: the thief who has read this package unlearns its marks without knowing the owner's.

Ours; first measured with this package. Everything but the secret is public. The thief draws marks of the same families
with secrets of his own, stamps them on a share s of the rows of every batch under their true labels, and fine-tunes:

    min over theta of  E[ CE(f(x'), y) ],   x' = x for a share 1 - s of the rows, m(x) for the others

with m drawn anew for every row from a large stock of foreign marks. What the network learns, "a text on the image means
nothing", takes the owner's marks along, as far as they look like the thief's.

| symbol | name | default | source |
|---|---|---|---|
| s | ``share`` | by budget: 0.25, 0.5 or 0.75 | ours |
| - | ``families`` | ``"content,noise"`` | ours: kinds that are rehearsed; the thief does not know the owner's |
| - | ``ba_drop`` | 0.03 | ours: points of held-out accuracy that the attack may cost |
| - | ``epochs``, ``lr``, ``every``, ``gamma`` | 30 (``cpu``: 5), 0.05, 5, 0.5 | as FT |
| - | ``momentum``, ``weight_decay``, ``batch_size`` | 0.9, 5e-4, 128 | as FT |

The attack makes keys of its own from the run's seed; it is given neither the owner's key nor a watermark sample.

Recipe ``sound`` only: the ICCV 2023 paper did not run this attack.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from indelible.attacks.base import ATTACKS, Removal
from indelible.attacks.one_recipe import OneRecipe
from indelible.attacks.strengths import try_strengths
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.registry import MethodInfo
from indelible.data.images import Data
from indelible.embed.stamping import StampedObjective
from indelible.keys.key import Key
from indelible.train import CrossEntropy, Objective, Schedule, TrainSettings
from indelible.train.objective import Step

__all__ = ["SHARES", "Rehearsal", "own_key"]

SHARES = (0.25, 0.5, 0.75)
_FAMILIES = ("content", "noise")


def own_key(seed: int, family: str, data: Data) -> Key:
    """Return a key of the thief's own for marks of ``family``, drawn from the seed of the attack."""
    secret = hashlib.sha256(f"rehearsal, {family}, seed {seed}".encode()).digest()
    kind: Any = family
    return Key.create(kind=kind, classes=len(data.classes), shape=data.shape, secret=secret)


class _Rotating(Objective):
    """Rehearses one family in each step, in turn."""

    def __init__(self, parts: list[Objective]) -> None:
        self.parts = parts

    def start(self, model: nn.Module, device: torch.device) -> None:
        for part in self.parts:
            part.start(model, device)

    def backward(self, step: Step) -> Tensor:
        return self.parts[step.number % len(self.parts)].backward(step)

    def settings(self) -> Mapping[str, Any]:
        return {"rehearsed": [dict(part.settings()) for part in self.parts]}


@dataclass(frozen=True, kw_only=True)
class Rehearsal(OneRecipe):
    """Fine-tune with foreign marks under true labels; the table in the module's header explains each setting."""

    cpu_settings: ClassVar[Mapping[str, Any]] = {"epochs": 5, "every": 2}

    share: float | None = None
    families: str = "content,noise"
    ba_drop: float = 0.03
    epochs: int = 30
    lr: float = 0.05
    every: float = 5
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise InputError(f"share is the part of the rows that carry a foreign mark, in (0, 1], got {self.share:g}.")
        for family in self.families.split(","):
            if family not in _FAMILIES:
                raise UnknownNameError("family of marks", family, _FAMILIES)

    def run(self, job: Removal) -> None:
        """Fine-tune at each share and keep the largest that the budget allows."""
        keys = [own_key(job.seed, family, job.data) for family in self.families.split(",")]
        settings = TrainSettings(
            epochs=self.epochs, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay,
            batch_size=self.batch_size, schedule=Schedule.every(self.every, self.gamma), augmentation="crop-flip",
        )  # fmt: skip

        def train(model: nn.Module, share: float, data: Data) -> None:
            parts: list[Objective] = [
                StampedObjective(
                    CrossEntropy(), key, fraction=0.0, negatives=share, normalize=job.normalize, seed=job.seed
                )
                for key in keys
            ]
            job.train(settings, phase=f"rehearsal, {share:g}", objective=_Rotating(parts), data=data, model=model)

        try_strengths(job, "share", SHARES, train, ba_drop=self.ba_drop, fixed=self.share)


ATTACKS.add(
    MethodInfo(
        name="rehearse",
        title="Rehearsal of foreign marks",
        paper="ours",
        summary="Fine-tune on images that carry other keys' marks under their true labels.",
        cost="30 epochs of the attacker's images for each of three shares",
        build=Rehearsal,
    )
)
