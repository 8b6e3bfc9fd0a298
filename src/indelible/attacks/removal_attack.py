"""The verb ``attack``: from a stolen model and the attacker's data to an attacked model and its record.

An attack is a frozen value that overrides :meth:`RemovalAttack.run`. It is given the model and the attacker's own
images and nothing else: no key, no watermark sample, no test image, no success rate. Whoever evaluates the result does
that afterwards, from outside.

Protocols: ``"sound"`` is the attack as it should be made; ``"paper"`` repeats what produced the paper's tables, with
the slips of the authors' code, each named in the attack's header.

Scales: ``"paper"`` has the paper's number of passes; ``"cpu"``, the default, is cheaper, 150,000 to 200,000 image
passes with 10,000 images of ten classes, at the same peak rates; docs/attacks/measured.md compares.
"""

import copy
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from torch import nn

from indelible.attacks.curve import Curve
from indelible.base.checks import check_trainable
from indelible.base.errors import DivergedError, InputError
from indelible.base.files import tensor_digest
from indelible.base.methods import Method, P, T, resolve, settings_in_value
from indelible.base.records import Record, hardware
from indelible.base.registry import MethodRegistry
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.nn.layers import check_finite
from indelible.train import Objective, TrainSettings
from indelible.train.devices import make_fabric
from indelible.train.evaluate import accuracy, check_classifier, evaluating
from indelible.train.job import Job, inputs_of
from indelible.train.processes import joined
from indelible.train.settings import SCALES

ATTACKS = MethodRegistry("removal attack", group="indelible.attacks", base="indelible.attacks:RemovalAttack")
Protocol = Literal["sound", "paper"]
PROTOCOLS: tuple[Protocol, ...] = ("sound", "paper")
_WATCHED = 1000
_HELD_OUT = 0.1
_TRAINING = ("epochs", "lr", "momentum", "weight_decay", "batch_size")


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """An attacked model.

    Attributes:
        model: An ordinary model of the class that came in.
        history: One row per epoch.
        record: What was run, with what, and what it cost.
        curve: The models of other strengths that the attack could have returned, if it has a strength.
        architecture: Name of the model's network when it is another than the stolen one's.
    """

    model: nn.Module = field(repr=False)
    history: Sequence[Mapping[str, Any]] = field(repr=False)
    record: Record
    curve: Curve | None = field(default=None, repr=False)
    architecture: str | None = None


@dataclass(frozen=True, kw_only=True)
class RemovalAttack(Method):
    """Base of removal attacks: settings as fields, the work in :meth:`run`.

    A value has the defaults of the scale ``paper``; :meth:`at_scale` gives those of another.

    Attributes:
        protocol: ``"sound"`` or ``"paper"``.
    """

    protocols: ClassVar[tuple[Protocol, ...]] = PROTOCOLS
    """Its protocols; an attack that the ICCV 2023 paper did not run has ``"sound"`` only."""
    needs_labels: ClassVar[bool] = True
    """False for an attack that never reads the labels of the attacker's images: these may be of another task."""
    only_trains: ClassVar[bool] = False
    """True for an attack that is training and nothing else: several processes can share it."""
    strengths: ClassVar[tuple[float, ...]] = ()
    """Strengths that the attack chooses from (:mod:`indelible.attacks.strengths`)."""

    protocol: Protocol = "sound"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.protocol not in self.protocols:
            raise InputError(
                f"{type(self).__name__} has one protocol, {self.protocols[0]!r}, got {self.protocol!r}: the paper "
                "whose slips the protocol 'paper' repeats did not run this attack. Leave the protocol out."
            )

    @classmethod
    def defaults(cls, scale: str) -> dict[str, Any]:
        """Return what a scale changes in the settings."""
        return dict(cls.cpu_settings) if SCALES[scale].name == "cpu" else {}

    @classmethod
    def at_scale(cls: Callable[P, T], scale: str = "cpu", *none: P.args, **settings: P.kwargs) -> T:
        """Build the attack with the defaults that its name has in :func:`attack`; ``settings`` are what differs."""
        build: Any = cls  # typed as its constructor, so that editors and type checkers know its settings
        return cast("T", build.of({**build.defaults(scale), **settings}, *none))

    def why_one_process(self) -> str:
        if self.only_trains:
            return ""
        return (
            "it tries several strengths, and does most of its work outside the training loop, which is the only part "
            "that several processes can share"
        )

    def passes(self, images: float, classes: int) -> float | None:
        """Return the image passes of an attack with so many images, to estimate its time; None when unknown.

        An attack with :attr:`strengths` trains nothing: it measures the stolen model and every strength.
        """
        return images * (len(self.strengths) + 1) if self.strengths else None

    def curve_models(self) -> int:
        """Return how many models the curve of this attack holds, each of which is measured afterwards."""
        return len(self.strengths)

    def training(self, **changes: Any) -> TrainSettings:
        """Return training settings with this attack's epochs, rate, ...; the protocol ``paper`` does not augment."""
        own = {name: getattr(self, name) for name in _TRAINING if hasattr(self, name)}
        return TrainSettings(**{"augmentation": "none" if self.protocol == "paper" else "crop-flip", **own, **changes})

    @abstractmethod
    def run(self, job: "Removal") -> None:
        """Change ``job.model`` in place, by ``job.train`` or otherwise."""


@dataclass(kw_only=True)
class Removal(Job):
    """A running attack: all that an attack can see.

    Attributes:
        normalize: (mean, std) of the model's input.
        labelled: False where the images' classes are not the model's: their labels mean nothing here.
        curve: Set by an attack that has a strength to choose.
        architecture: Set by an attack that returns another network than the stolen one.
    """

    normalize: Normalization | None = None
    labelled: bool = True
    curve: Curve | None = None
    architecture: str | None = None

    @property
    def place(self) -> torch.device:
        """The device that ``device`` means; :func:`attack` has put the model there."""
        return make_fabric(device=self.device).device

    def parts(self) -> tuple[Data, Data]:
        """Split the attacker's images: nine tenths to fit an attack to, one tenth to choose its strength by."""
        held = max(1, round(_HELD_OUT * len(self.data)))
        if len(self.data) - held < 2:
            raise InputError(
                f"the attacker has {len(self.data)} images, too few to hold some out. Give at least three."
            )
        order = torch.randperm(len(self.data), generator=generator(self.seed, "held-out"))
        return self.data.subset(order[held:].sort().values), self.data.subset(order[:held].sort().values)

    def sample(self, count: int = 2) -> torch.Tensor:
        """Return a few images as the model takes them, to trace its shapes with."""
        images = self.data.gather(torch.arange(min(count, len(self.data)))).images
        return normalise(to_float(images.to(self.place)), self.normalize)

    def accuracy(self, model: nn.Module, data: Data) -> float:
        """Return the accuracy of ``model`` on images of the attacker, and count the passes."""
        self.count(len(data))
        return accuracy(model, data, normalize=self.normalize)

    def show(self, data: Data, batch: int = 500) -> None:
        """Pass images of the attacker through the model in evaluation mode, for hooks to see, and count the passes."""
        with evaluating(self.model):
            for images, _ in data.iterate(torch.arange(len(data)), batch, self.place):
                self.model(normalise(to_float(images), self.normalize))
        self.count(len(data))

    def train(
        self, settings: TrainSettings, *, phase: str, objective: Objective | None = None, data: Data | None = None,
        model: nn.Module | None = None,
    ) -> None:  # fmt: skip
        """Train on the attacker's images; a phase that an earlier session finished is not done again.

        By default the attacked model is trained, on all images, by the cross-entropy. Each phase has another name.
        """
        try:
            self.fit(
                model or self.model, data or self.data, settings.but(normalize=self.normalize), phase=phase,
                objective=objective, evaluate=self._watch if self.labelled else None,
            )  # fmt: skip
        except DivergedError as error:
            raise DivergedError(error.args[0], self._remedy(settings)) from error

    def _remedy(self, settings: TrainSettings) -> str:
        """Name the attack's own settings that tame a training: not every attack has one to clip gradients."""
        rates = [
            f"{name}={value / 10:g} (now {value:g})" for name, value in self.method.items()
            if (name == "lr" or name.endswith("_lr")) and value == settings.lr
        ]  # fmt: skip
        clip = f", or clip (now {settings.clip:g})" if "clip" in self.method and settings.clip is not None else ""
        return f"Lower the attack's learning rate: {' or '.join(rates) or f'now {settings.lr:g}'}{clip}."

    def _watch(self, model: nn.Module) -> dict[str, float]:
        # The attacker has no test set; accuracy on own images at least shows a model that falls apart.
        seen = self.data.subset(torch.arange(min(_WATCHED, len(self.data))))
        return {"accuracy_attacker": accuracy(model, seen, normalize=self.normalize)}


@settings_in_value(ATTACKS, "ft")
def attack(
    model: nn.Module,
    data: Any,
    method: str | RemovalAttack = "ft",
    *,
    scale: str = "cpu",
    seed: int = 0,
    normalize: Normalization | None = None,
    folder: str | Path | None = None,
    device: str = "auto",
) -> Attacked:
    """Try to remove the watermark from a copy of ``model``.

    Args:
        model: The stolen classifier.
        data: The attacker's images: data set, pair (images, labels), folder, ``.npz``.
        method: A registered name (``indelible attack --list``), ``"package.module:Class"``, or an attack value. A value
            is how settings are given: ``FineTuning.at_scale(lr=0.01)`` has the defaults of the name ``"ft"`` for all
            else, ``FineTuning(lr=0.01)`` those of the scale ``paper``.
        scale: ``"cpu"``, or ``"paper"`` with the paper's number of passes; for a method given by its name.
        seed: The same seed and settings give the same bits on the same machine.
        normalize: (mean, std) that the model expects its input to be normalised by.
        folder: Keep checkpoints and history there; an interrupted run there is continued.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.

    Returns:
        The attacked model with its history and record; ``model`` itself is unchanged.
    """
    check_trainable(model)
    name, value = resolve(ATTACKS, method, lambda build: build.at_scale(scale))
    if scale != "cpu" and not isinstance(method, str):
        raise InputError(
            f"scale={scale!r} chooses the settings of an attack that is given by its name, got an attack value, "
            "which has all its settings. Give the name, or leave out scale."
        )
    with joined(device=device) as group:
        if group.world > 1 and (why := value.why_one_process()):
            raise InputError(f"the attack {name!r} runs in one process: {why}. Start it without torchrun.")
        images = as_data(data)
        check_finite(model)
        outputs = check_classifier(model, images, normalize=normalize, labelled=value.needs_labels)
        job = Removal(
            model=copy.deepcopy(model), data=images, seed=seed, normalize=normalize,
            folder=None if folder is None else Path(folder), device=device, method=value.to_json(),
            labelled=outputs == len(images.classes),
        )  # fmt: skip
        job.model.to(job.place)  # before the clock starts: it may have to load what drives the device
        began = time.monotonic()
        value.run(job)
        seconds, passed = job.cost(time.monotonic() - began)
    job.model.train(model.training)
    curve = {} if job.curve is None else {"curve": job.curve.to_json()}
    record = Record(
        verb="attack", method=name, seed=seed,
        settings={
            "method": job.method, "scale": scale if isinstance(method, str) else None, "normalize": normalize,
            "device": device, **group.to_json()
        },
        inputs=inputs_of(images, model),
        metrics={**job.figures, **curve, "model_digest": tensor_digest(job.model.state_dict())},
        seconds=seconds, images=passed, hardware=hardware(next(job.model.parameters()).device),
    )  # fmt: skip
    return Attacked(
        model=job.model, history=job.history(), record=record, curve=job.curve, architecture=job.architecture
    )
