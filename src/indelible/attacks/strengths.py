"""Choose how strong an attack is: try strengths, judge each by the attacker's images, take the strongest in budget.

| a strength is | tried by |
|---|---|
| a change of the stolen weights | :func:`change_at_budget`, or :func:`measure` for models that are built otherwise |
| a setting of a training | :class:`TrainedStrength`; :class:`Trials` if what is tried next depends on what was seen |
| a number of rounds of one training | :func:`try_rounds` |

Trainings are judged by a tenth of the attacker's images that none of them sees. All leave their curve in ``job.curve``,
which makes the model of any strength again for whoever holds the key.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from indelible.attacks.curve import Curve, Direction, choose
from indelible.attacks.removal_attack import Removal, RemovalAttack
from indelible.base.errors import InputError
from indelible.data.images import Data

Build = Callable[[float], nn.Module]
Change = Callable[[nn.Module, float], None]
Training = Callable[[nn.Module, float, Data], None]


def changed(stolen: nn.Module, change: Change) -> Build:
    """Return what builds the model of a strength: a copy of the stolen one, changed in place."""
    kept = copy.deepcopy(stolen)

    def build(value: float) -> nn.Module:
        model = copy.deepcopy(kept)
        change(model, value)
        return model

    return build


def measure(
    job: Removal, name: str, values: Sequence[float], build: Build, *, judges: Data, ba_drop: float,
    given: float | None = None, reference: float | None = None, strongest: Direction = "high",
    first_is_stolen: bool = False, inner: bool = False,
) -> float:  # fmt: skip
    """Measure the model of every strength by ``judges``, leave the curve in the job, and return the strength chosen.

    ``job.model`` is still the stolen one. A ``given`` strength is taken whatever it costs. ``reference`` is the
    accuracy of the stolen model, measured if it is needed and not given; with ``first_is_stolen`` it is that of the
    least strength, which leaves the model as it is. ``inner``: choose neither the first nor the last.
    """
    tried = sorted({*values, *(() if given is None else (given,))})
    accuracies = [job.accuracy(build(value), judges) for value in tried]
    chosen = given
    if chosen is None:
        if reference is None:
            reference = accuracies[0] if first_is_stolen else job.accuracy(job.model, judges)
        among = slice(1, -1) if inner else slice(None)
        chosen = choose(tried[among], accuracies[among], reference, ba_drop, strongest)
    job.curve = Curve(name=name, values=tuple(tried), accuracies=tuple(accuracies), chosen=chosen, build=build)
    return chosen


def change_at_budget(
    job: Removal, change: Change, *, name: str, values: Sequence[float], given: float | None, ba_drop: float,
    strongest: Direction = "high", judges: Data | None = None, reference: float | None = None,
) -> float:  # fmt: skip
    """Change ``job.model`` at the strength that :func:`measure` chooses, by default with all images as judges."""
    chosen = measure(
        job, name, values, changed(job.model, change), judges=judges or job.data, ba_drop=ba_drop, given=given,
        reference=reference, strongest=strongest,
    )  # fmt: skip
    change(job.model, chosen)
    return chosen


class Trials:
    """Models trained from the stolen one, each judged by held-out images; ``fitting`` are those to train on."""

    def __init__(self, job: Removal) -> None:
        self.job, self.stolen = job, copy.deepcopy(job.model)
        self.fitting, self._held = job.parts()
        self.kept = dict[float, Mapping[str, Tensor]]()
        self.reference, self.accuracies = job.accuracy(self.stolen, self._held), list[float]()

    def add(self, value: float, train: Callable[[nn.Module, Data], None]) -> bool:
        """Train a copy of the stolen model and keep it under ``value``; False when it became NaN or infinite."""
        model = copy.deepcopy(self.stolen)
        try:
            train(model, self.fitting)
            self.keep(value, model)
        except InputError:
            # A rate too large for this network is no reason to lose the milder models.
            if not self.kept or all(bool(value.isfinite().all()) for value in model.state_dict().values()):
                raise
            return False
        return True

    def keep(self, value: float, model: nn.Module) -> float:
        """Keep the weights of ``model`` under ``value``, stronger than all before; return its held-out accuracy."""
        self.accuracies.append(self.job.accuracy(model, self._held))
        self.kept[value] = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        return self.accuracies[-1]

    def best(self, ba_drop: float) -> float:
        """Return the strongest value so far within the budget; failing that, the most accurate one."""
        return choose(tuple(self.kept), self.accuracies, self.reference, ba_drop)

    def settle(self, name: str, ba_drop: float) -> None:
        """Take the best value: leave the curve in the job and give its model the weights."""
        chosen = self.best(ba_drop)

        def build(value: float) -> nn.Module:
            model = copy.deepcopy(self.stolen)
            model.load_state_dict(self.kept[value])
            return model

        self.job.curve = Curve(
            name=name, values=tuple(self.kept), accuracies=tuple(self.accuracies), chosen=chosen, build=build
        )
        self.job.note(**{name: chosen}, accuracy=self.reference)
        self.job.model.load_state_dict(self.kept[chosen])


@dataclass(frozen=True, kw_only=True)
class TrainedStrength(RemovalAttack):
    """An attack whose strength is a setting of its training: one model for each, all from the stolen one.

    A strength that the user gives is trained once, on all images. One that makes the weights NaN or infinite ends the
    list.
    """

    protocols = ("sound",)
    strength: ClassVar[str]
    """The setting that is the strength; None leaves it to the budget."""
    strengths: ClassVar[tuple[float, ...]]
    """From mild to strong."""

    ba_drop: float = 0.02
    epochs: int
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128

    def passes(self, images: float, classes: int) -> float:
        return images * self.epochs * max(1, self.curve_models())

    def curve_models(self) -> int:
        return len(self.strengths) if getattr(self, self.strength) is None else 0

    def train(self, job: Removal, model: nn.Module, value: float, data: Data) -> None:
        """Train ``model``, a copy of the stolen one, at the strength ``value``."""
        raise NotImplementedError

    def trainer(self, job: Removal) -> Training:
        """Return what trains a model at a strength; override it to prepare something for all of them."""
        return partial(self.train, job)

    def run(self, job: Removal) -> None:
        """Train at each strength and keep the strongest that the budget allows."""
        train, given = self.trainer(job), getattr(self, self.strength)
        if given is not None:
            train(job.model, given, job.data)
            job.note(**{self.strength: given})
            return
        trials = Trials(job)
        for value in self.strengths:
            if not trials.add(value, lambda model, data, value=value: train(model, value, data)):  # type: ignore[misc]
                job.note(diverged=value)
                break
        trials.settle(self.strength, self.ba_drop)


def try_rounds(job: Removal, rounds: int, train: Callable[[nn.Module, int, Data], None], *, ba_drop: float) -> None:
    """Train a copy of the stolen model round by round, from 1 on, and keep as many rounds as the budget allows."""
    trials, model = Trials(job), copy.deepcopy(job.model)
    for number in range(1, rounds + 1):
        train(model, number, trials.fitting)
        trials.keep(number, model)
    trials.settle("rounds", ba_drop)
