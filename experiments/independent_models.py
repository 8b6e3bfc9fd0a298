"""Train small models independently, none of which sees a watermark: what false claims are measured on.

Each has its own initial weights, its own images (drawn from the training set) and its own order of them. They are
ordinary run folders; a finished one is not trained again.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from command import command
from indelible.base.errors import InputError
from indelible.base.progress import Progress, silenced
from indelible.data import Split, load
from indelible.data.images import Data
from indelible.train import TrainSettings
from indelible.train.job import train_unmarked
from indelible.train.run_folder import Architecture, Run

__all__ = ["NullModels", "asked_models", "null_models", "with_models"]


@dataclass(frozen=True, kw_only=True)
class NullModels:
    """What is trained; the tests train less.

    Attributes:
        count: How many models.
        data: The data set.
        model: The network.
        images: Training images of each, drawn anew for each.
        train: Training settings.
    """

    count: int = 60
    data: str = "fashion-mini"
    model: str = "resnet-mini"
    images: int = 2500
    train: dict[str, Any] = field(
        default_factory=lambda: {
            "epochs": 3, "batch_size": 64, "schedule": "one-cycle", "augmentation": "none", "evaluate_every": 3
        }
    )  # fmt: skip


def null_models(out: str | Path, settings: NullModels) -> Iterator[tuple[nn.Module, float, Data]]:
    """Yield (model, BA, test images) of each, training what is not in ``out`` yet."""
    train, test = load(settings.data)
    how = TrainSettings().but(**settings.train)
    architecture = Architecture(name=settings.model, classes=len(train.classes), shape=train.shape)
    with Progress("null models", settings.count) as bar:
        for number in range(settings.count):
            folder = Path(out) / f"model-{number:03}"
            if not Run.finished(folder):
                split = Split.draw(len(train), attacker=1.0 - settings.images / len(train), seed=number)
                with silenced():
                    trained = train_unmarked(
                        architecture.build(number), train.subset(split.owner), how, seed=number, test=test,
                        folder=folder, device="cpu",
                    )  # fmt: skip
                Run.save(
                    folder, model=trained.model, record=trained.record, architecture=architecture, data=settings.data,
                    split=split, history=trained.history,
                )  # fmt: skip
            run = Run.load(folder)
            yield run.model(), float(run.record.metrics["ba"]), test
            bar.advance()


def with_models(about: str | None) -> argparse.ArgumentParser:
    """Return a command's parser with the options of an experiment on these models."""
    options = command(about)
    options.add_argument("--models", type=int, default=60, help="how many independent models (default: 60)")
    options.add_argument(
        "--folder", type=Path, default=Path("bench/null-models"),
        help="the models, shared by all experiments on them (default: bench/null-models)",
    )  # fmt: skip
    return options


def asked_models(arguments: argparse.Namespace) -> NullModels:
    """Return what the options ask for."""
    if arguments.models < 1:
        raise InputError(f"--models must be at least 1, got {arguments.models}.")
    return NullModels(count=arguments.models)
