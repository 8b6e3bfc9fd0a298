"""A running embedding or attack: what it works on, its trainings, and what it has cost; and a run without a mark."""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from indelible.base.files import tensor_digest
from indelible.base.records import Record, hardware
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.train.evaluate import accuracy, check_classifier
from indelible.train.fit_and_watch import fit
from indelible.train.loop import Evaluate, Fitted
from indelible.train.objective import Objective
from indelible.train.settings import TrainSettings


@dataclass(kw_only=True)
class Job:
    """Base of what a method works with.

    Attributes:
        model: The model to change, a copy of the user's.
        data: The images to train on.
        seed: The run's seed.
        folder: Where to keep checkpoints and history, or None.
        device: Where to train.
        method: The method's settings: a checkpoint made with others is refused.
        phases: What each training gave.
        figures: What the method noted for its record.
        images: Image passes outside training.
        seconds: Of work outside training that an earlier session did and that was not done again.
    """

    model: nn.Module
    data: Data
    seed: int
    folder: Path | None = None
    device: str = "auto"
    method: Mapping[str, Any] = field(default_factory=dict)
    phases: list[Fitted] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    images: int = 0
    seconds: float = 0.0
    _trained: float = field(default=0.0, repr=False)

    def note(self, **figures: Any) -> None:
        """Add figures to the record: a chosen rate, a detected class."""
        self.figures |= figures

    def history(self) -> list[Mapping[str, Any]]:
        """Return the rows of all phases so far."""
        return [row for phase in self.phases for row in phase.history]

    def count(self, images: int, *, seconds: float = 0.0) -> None:
        """Add image passes outside training, and the seconds that an earlier session spent on them."""
        self.images += images
        self.seconds += seconds

    def cost(self, wall: float) -> tuple[float, int]:
        """Return seconds and image passes of all sessions, when this one has taken ``wall`` seconds so far."""
        trained = sum(phase.seconds for phase in self.phases)
        passed = sum(phase.images for phase in self.phases)
        return trained + self.seconds + max(0.0, wall - self._trained), passed + self.images

    def fit(
        self, model: nn.Module, data: Data, settings: TrainSettings, *, phase: str, objective: Objective | None,
        evaluate: Evaluate | None, seed: int | None = None, **identity: str,
    ) -> None:  # fmt: skip
        """Train; a phase that an earlier session finished is not done again. Each phase has another name.

        A checkpoint is known by the method's settings, the images and the weights at the start.
        """
        began = time.monotonic()
        known = {"data": data.digest(), "start": tensor_digest(model.state_dict()), "method": self.method, **identity}
        fitted = fit(
            model, data, settings, seed=self.seed if seed is None else seed, objective=objective, evaluate=evaluate,
            folder=self.folder, identity=known, device=self.device, phase=phase, earlier=self.history(),
        )  # fmt: skip
        self.phases.append(fitted)
        self._trained += time.monotonic() - began


def inputs_of(data: Data, model: nn.Module) -> dict[str, Any]:
    """Return what a record says of the images and the model that went in."""
    return {
        "data": data.name, "data_digest": data.digest(), "images": len(data),
        "model": type(model).__name__, "model_digest": tensor_digest(model.state_dict()),
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained copy of an ordinary model without any watermark, with one row of history per epoch."""

    model: nn.Module = field(repr=False)
    history: Sequence[Mapping[str, Any]] = field(repr=False)
    record: Record


def train_unmarked(
    model: nn.Module,
    data: Any,
    settings: TrainSettings,
    *,
    seed: int = 0,
    test: Any = None,
    folder: str | Path | None = None,
    device: str = "auto",
) -> Trained:
    """Train a copy of ``model`` on ``data``, the reference that a verdict must not call owned.

    Arguments are as in :func:`indelible.embed`.
    """
    judge = None if test is None else as_data(test)
    job = Job(
        model=copy.deepcopy(model), data=as_data(data), seed=seed, folder=None if folder is None else Path(folder),
        device=device,
    )  # fmt: skip
    check_classifier(model, job.data, normalize=settings.normalize)

    def evaluate(current: nn.Module) -> dict[str, float]:
        return {} if judge is None else {"ba": accuracy(current, judge, normalize=settings.normalize)}

    job.fit(job.model, job.data, settings, phase="training", objective=None, evaluate=evaluate)
    job.model.train(model.training)
    (fitted,) = job.phases
    record = Record(
        verb="train", method="none", seed=seed, settings={"train": settings.to_json(), "device": device},
        inputs=inputs_of(job.data, model),
        metrics={**evaluate(job.model), "model_digest": tensor_digest(job.model.state_dict())},
        seconds=fitted.seconds, images=fitted.images, hardware=hardware(next(job.model.parameters()).device),
    )  # fmt: skip
    return Trained(model=job.model, history=fitted.history, record=record)
