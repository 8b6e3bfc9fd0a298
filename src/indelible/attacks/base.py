"""The verb ``attack``: from a stolen model and the attacker's data to a washed model and its record.

An attack is a frozen value that overrides :meth:`RemovalAttack.run`. It is given the model and the attacker's own
images and nothing else: no key, no watermark sample, no test image, no success rate. Whoever evaluates the result does
that afterwards, from outside.

Recipes: ``"sound"`` is the attack as it should be made; ``"paper"`` repeats what produced the paper's tables, with the
slips of the authors' code, each named in the attack's header.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from indelible.base.errors import UnknownNameError
from indelible.base.files import tensor_digest
from indelible.base.methods import Method, resolve
from indelible.base.records import Record, hardware
from indelible.base.registry import MethodInfo, Registry
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.nn.layers import check_finite
from indelible.train import Fitted, Objective, TrainSettings, fit
from indelible.train.evaluate import accuracy, check_classifier
from indelible.train.processes import Group, elsewhere, joined, must_start

__all__ = ["ATTACKS", "Attacked", "Recipe", "Removal", "RemovalAttack", "attack"]

ATTACKS: Registry[MethodInfo] = Registry("removal attack")
Recipe = Literal["sound", "paper"]
_RECIPES = ("sound", "paper")
_WATCHED = 1000


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """A washed model.

    Attributes:
        model: An ordinary model of the class that came in.
        history: One row an epoch.
        record: What was run, with what, and what it cost.
    """

    model: nn.Module = field(repr=False)
    history: Sequence[Mapping[str, Any]] = field(repr=False)
    record: Record


@dataclass(frozen=True, kw_only=True)
class RemovalAttack(Method):
    """Base of removal attacks: settings as fields, the work in :meth:`run`.

    Attributes:
        recipe: ``"sound"`` or ``"paper"``.
    """

    recipe: Recipe = "sound"

    def __post_init__(self) -> None:
        if self.recipe not in _RECIPES:
            raise UnknownNameError("recipe", self.recipe, _RECIPES)

    @abstractmethod
    def run(self, job: "Removal") -> None:
        """Change ``job.model`` in place, by ``job.train`` or otherwise."""


@dataclass(kw_only=True)
class Removal:
    """One attack under way: all that an attack can see.

    Attributes:
        model: The model to wash, a copy of the stolen one.
        data: The attacker's images.
        seed: The run's seed.
        normalize: (mean, std) that the model's input is normalised by.
        folder: Where to keep checkpoints and history, or None.
        device: Where to compute.
    """

    model: nn.Module
    data: Data
    seed: int
    normalize: Normalization | None = None
    folder: Path | None = None
    device: str = "auto"
    phases: list[Fitted] = field(default_factory=list)

    def train(
        self, settings: TrainSettings, *, phase: str, objective: Objective | None = None, data: Data | None = None,
        model: nn.Module | None = None,
    ) -> None:  # fmt: skip
        """Train on the attacker's images; a phase that an earlier session finished is not done again.

        Args:
            settings: How to train.
            phase: What this training is called; an attack of several phases names each differently.
            objective: What to minimise; by default the cross-entropy.
            data: Train on this, made of the attacker's images; by default on all of them.
            model: Train this one (a teacher, a student); by default the model that is attacked.
        """
        images, trained = data or self.data, model or self.model
        identity = {"data": images.digest(), "start": tensor_digest(trained.state_dict())}
        fitted = fit(
            trained, images, settings.but(normalize=self.normalize), seed=self.seed, objective=objective,
            evaluate=self._watch, folder=self.folder, identity=identity, device=self.device, phase=phase,
            earlier=self.history(),
        )  # fmt: skip
        self.phases.append(fitted)

    def history(self) -> list[Mapping[str, Any]]:
        """Return the rows of all phases so far."""
        return [row for phase in self.phases for row in phase.history]

    def _watch(self, model: nn.Module) -> dict[str, float]:
        # The attacker has no test set; accuracy on own images at least shows a model that falls apart.
        seen = self.data.subset(torch.arange(min(_WATCHED, len(self.data))))
        return {"accuracy_attacker": accuracy(model, seen, normalize=self.normalize)}


def attack(
    model: nn.Module,
    data: Any,
    method: str | RemovalAttack = "ft",
    *,
    seed: int = 0,
    normalize: Normalization | None = None,
    folder: str | Path | None = None,
    device: str = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    **settings: Any,
) -> Attacked:
    """Try to wash the watermark out of a copy of ``model``.

    Args:
        model: The stolen classifier.
        data: The attacker's images: data set, pair (images, labels), folder, ``.npz``.
        method: A registered name (``indelible attack --list``) or an attack value.
        seed: The same seed and settings give the same bits on the same machine.
        normalize: (mean, std) that the model expects its input to be normalised by.
        folder: Keep checkpoints and history there; a run that was broken off there is continued.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
        devices: Processes on this machine, one device each; more than one are started, and the script needs
            ``if __name__ == "__main__":``. By default one - or, under torchrun, all that it launched.
        nodes: Machines on which this call is made.
        settings: Settings of the attack, when ``method`` is a name: ``recipe="paper"``, ``epochs=30``.

    Returns:
        The washed model with its history and record; ``model`` itself is unchanged.
    """
    if must_start(devices, nodes):
        arguments = {
            "data": data, "method": method, "seed": seed, "normalize": normalize, "folder": folder, "device": device,
            **settings,
        }  # fmt: skip
        return Attacked(**elsewhere(attack, model, arguments, devices=devices, nodes=nodes))
    with joined(devices=devices, nodes=nodes, device=device) as group:
        return _attack(model, data, method, seed, normalize, folder, device, settings, group)


def _attack(
    model: nn.Module, data: Any, method: str | RemovalAttack, seed: int, normalize: Normalization | None,
    folder: str | Path | None, device: str, settings: Mapping[str, Any], group: Group,
) -> Attacked:  # fmt: skip
    """Do the work of :func:`attack`, in each of its processes."""
    name, value = resolve(ATTACKS, method, settings)
    images = as_data(data)
    check_finite(model)
    check_classifier(model, images, normalize=normalize)
    job = Removal(
        model=copy.deepcopy(model), data=images, seed=seed, normalize=normalize,
        folder=None if folder is None else Path(folder), device=device,
    )  # fmt: skip
    value.run(job)
    job.model.train(model.training)
    record = Record(
        verb="attack", method=name, seed=seed,
        settings={"method": value.to_json(), "normalize": normalize, "device": device, **group.to_json()},
        inputs={
            "data": images.name, "data_digest": images.digest(), "images": len(images),
            "model": type(model).__name__, "model_digest": tensor_digest(model.state_dict()),
        },
        metrics={"model_digest": tensor_digest(job.model.state_dict())},
        seconds=sum(phase.seconds for phase in job.phases), images=sum(phase.images for phase in job.phases),
        hardware=hardware(next(job.model.parameters()).device),
    )  # fmt: skip
    return Attacked(model=job.model, history=job.history(), record=record)
