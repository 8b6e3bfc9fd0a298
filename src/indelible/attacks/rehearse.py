"""Rehearsal: the thief who has read this package unlearns its marks without knowing the owner's.

Ours. The thief draws marks of the same families with secrets of his own, stamps them on a share s of the rows of every
batch under their true labels, and fine-tunes:

    min over theta of  E[ CE(f(x'), y) ],   x' = x for a share 1 - s of the rows, m(x) for the others

with m drawn anew for every row from a large stock of foreign marks.

| symbol | name | default | source |
|---|---|---|---|
| s | ``share`` | by budget: 0.25, 0.5 or 0.75 | ours |

All settings, and how share, rate and length are chosen one after the other: docs/attacks/rehearse.md.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import Trials
from indelible.base.errors import UnknownNameError
from indelible.data.images import Data
from indelible.embedding.mixing import StampedObjective
from indelible.keys.key import Key
from indelible.train import CrossEntropy, Objective, Schedule, Step

SHARES = (0.25, 0.5, 0.75)
RATES = (0.05, 0.1)
_FAMILIES = ("content", "noise", "unrelated")


def own_key(seed: int, family: str, data: Data) -> Key:
    """Return a key of the thief's own for marks of ``family``, drawn from the seed of the attack."""
    secret = hashlib.sha256(f"rehearsal, {family}, seed {seed}".encode()).digest()
    kind: Any = family
    return Key.create(kind=kind, classes=len(data.classes), shape=data.shape, secret=secret)


class _Rotating(Objective):
    """Rehearses one family in each step, in turn."""

    def __init__(self, parts: list[Objective]) -> None:
        self.parts = parts

    def backward(self, step: Step) -> Tensor:
        return self.parts[step.number % len(self.parts)].backward(step)


@dataclass(frozen=True)
class Trial:
    """One training: the share of rows with a foreign mark, the first rate, and how long."""

    share: float
    lr: float
    epochs: int


@ATTACKS.register(
    name="rehearse",
    title="Rehearsal of foreign marks",
    paper="ours",
    summary="Fine-tune on images that carry other keys' marks under their true labels.",
    cost="70 epochs of the attacker's images: ten at each of three shares and at a higher rate, then thirty",
)
@dataclass(frozen=True, kw_only=True)
class Rehearsal(RemovalAttack):
    """Fine-tune with foreign marks under true labels; docs/attacks/rehearse.md explains each setting."""

    protocols = ("sound",)
    cpu_settings = {"epochs": 15, "trial_epochs": 5, "every": 4}
    ranges = {"share": "(0, 1]", "trial_epochs": "[1, inf)"}

    share: float | None = None
    lr: float | None = None
    families: str = "content,noise,unrelated"
    ba_drop: float = 0.03
    epochs: int = 30
    trial_epochs: int = 10
    every: float = 5
    gamma: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for family in self.families.split(","):
            if family not in _FAMILIES:
                raise UnknownNameError("family of marks", family, _FAMILIES)

    def passes(self, images: float, classes: int) -> float:
        return images * sum(self.lengths())

    def curve_models(self) -> int:
        return len(self.lengths())

    def lengths(self) -> list[int]:
        """Return the epochs of every training, in the order of :meth:`run`."""
        if self.share is not None and self.lr is not None:
            return [self.epochs]
        short = min(self.trial_epochs, self.epochs)
        count = (len(SHARES) if self.share is None else 1) + (len(RATES) - 1 if self.lr is None else 0)
        return [short] * count + ([self.epochs] if self.epochs > short else [])

    def run(self, job: Removal) -> None:
        """Choose share, rate and length, each at the budget; keep the last model that it allows."""
        keys = [own_key(job.seed, family, job.data) for family in self.families.split(",")]
        if self.share is not None and self.lr is not None:
            given = Trial(self.share, self.lr, self.epochs)
            self._train(job, keys, job.model, given, job.data)
            job.note(**asdict(given))
            return
        trials, tried, short = Trials(job), list[Trial](), min(self.trial_epochs, self.epochs)

        def attempt(trial: Trial) -> Trial:
            """Train, and return the best trial so far."""
            if trials.add(len(tried) + 1, lambda model, data: self._train(job, keys, model, trial, data)):
                tried.append(trial)
            else:
                job.note(diverged=asdict(trial))
            return tried[int(trials.best(self.ba_drop)) - 1]

        rates = RATES if self.lr is None else (self.lr,)
        for share in SHARES if self.share is None else (self.share,):
            best = attempt(Trial(share, rates[0], short))
        for rate in rates[1:]:
            best = attempt(Trial(best.share, rate, short))
        if self.epochs > short:
            best = attempt(Trial(best.share, best.lr, self.epochs))
        trials.settle("trial", self.ba_drop)
        job.note(trials=[asdict(trial) for trial in tried], **asdict(best))

    def _train(self, job: Removal, keys: list[Key], model: nn.Module, trial: Trial, data: Data) -> None:
        schedule = Schedule.every(self.every * trial.epochs / self.epochs, self.gamma)
        settings = self.training(epochs=trial.epochs, lr=trial.lr, schedule=schedule)
        parts: list[Objective] = [
            StampedObjective(
                CrossEntropy(), key, fraction=0.0, negatives=trial.share, normalize=job.normalize, seed=job.seed
            )
            for key in keys
        ]
        phase = f"rehearsal, {trial.share:g}, {trial.lr:g}, {trial.epochs}"
        job.train(settings, phase=phase, objective=_Rotating(parts), data=data, model=model)
