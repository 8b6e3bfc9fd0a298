"""Plain training without any watermark: the reference that a verdict must not call owned."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from indelible.base.files import tensor_digest
from indelible.base.records import Record, hardware
from indelible.data.convert import as_data
from indelible.train.evaluate import accuracy, check_classifier
from indelible.train.fit import fit
from indelible.train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained copy of an ordinary model, with one row of history per epoch."""

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
    """Train a copy of ``model`` on ``data``; arguments as in :func:`indelible.embed`."""
    images = as_data(data)
    judge = None if test is None else as_data(test)
    check_classifier(model, images, normalize=settings.normalize)
    own = copy.deepcopy(model)

    def evaluate(current: nn.Module) -> dict[str, float]:
        return {} if judge is None else {"ba": accuracy(current, judge, normalize=settings.normalize)}

    identity = {"data": images.digest(), "start": tensor_digest(own.state_dict())}
    fitted = fit(
        own, images, settings, seed=seed, evaluate=evaluate, folder=None if folder is None else Path(folder),
        identity=identity, device=device, phase="training",
    )  # fmt: skip
    own.train(model.training)
    record = Record(
        verb="train", method="none", seed=seed, settings={"train": settings.to_json(), "device": device},
        inputs={
            "data": images.name, "data_digest": images.digest(), "images": len(images),
            "model": type(model).__name__, "model_digest": tensor_digest(model.state_dict()),
        },
        metrics={**evaluate(own), "model_digest": tensor_digest(own.state_dict())},
        seconds=fitted.seconds, images=fitted.images, hardware=hardware(next(own.parameters()).device),
    )  # fmt: skip
    return Trained(model=own, history=fitted.history, record=record)
