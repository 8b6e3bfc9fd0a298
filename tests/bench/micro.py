"""A benchmark of seconds: stripes, a tiny network, every attack of the paper at its cheapest."""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from torch import Tensor

from indelible.attacks.removal_attack import Removal, RemovalAttack
from indelible.bench.cell_records import Outcome
from indelible.bench.cells import BenchCell, data_digests, plan_cells
from indelible.bench.preset import BenchPreset, load_preset
from indelible.embedding import EMBEDDINGS
from tests.conftest import TinyNet, stripes

VOLATILE = ("seconds", "images_per_second", "hardware", "versions")
"""Fields of a record that say how it was made, not its results."""

PRESET = """# indelible bench run micro.toml
title = "Micro"
reported = "cifar10"
data = "{data}"
architectures = ["tests.conftest:TinyNet"]
seeds = [0]
curve_images = 20

[key]
target = 0

[kinds.content]

[train]
scale = "cpu"
epochs = 2
batch_size = 32
evaluate_every = 1
checkpoint_seconds = 0.0

[methods.vanilla]

[methods.app]
rows = 8
clean_rows = 8

[attacks.ft]
epochs = 2
batch_size = 32
"""

OTHER_ATTACKS = """
[attacks.fp]
epochs = 1
batch_size = 32

[attacks.anp]
epochs = 1
batch_size = 32

[attacks.nad]
teacher_epochs = 1
epochs = 1
batch_size = 32

[attacks.mcr]
end_epochs = 1
epochs = 1
points = 3
batch_size = 16

[attacks.nnl]
cleanse_epochs = 1
epochs = 1
batch_size = 32
"""


def write_preset(folder: Path, *, extra: str = "", images: int = 160, change: tuple[str, str] = ("", "")) -> Path:
    """Write data and preset; return the preset's path."""
    data = folder / "bars.npz"
    if not data.exists():
        train, test = stripes(images), stripes(80, seed=1)
        np.savez(
            data, x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
            y_test=test.labels.numpy(),
        )  # fmt: skip
    path = folder / "micro.toml"
    path.write_text(
        (PRESET.format(data=data) + extra).replace(*change) if change[0] else PRESET.format(data=data) + extra
    )
    return path


def known_preset(name: str) -> BenchPreset:
    """Return a preset of the package; the test is skipped if it names a method that is not registered."""
    preset = load_preset(name)
    unknown = {method.name for method in preset.methods} - set(EMBEDDINGS)
    if unknown:
        pytest.skip(f"not registered: {', '.join(sorted(unknown))}")
    return preset


def cells_of(path: Path) -> tuple[BenchPreset, list[BenchCell]]:
    """Return a preset and its cells."""
    preset = load_preset(path)
    return preset, plan_cells(preset, data_digests(preset))


class Nothing(RemovalAttack):
    """An attack from outside the package that leaves the model as it is."""

    def run(self, job: Removal) -> None:
        pass


class LoggedNet(TinyNet):
    """Notes in the file ``$MICRO_LOG`` where it is built; hangs on the node that the file ``$MICRO_DOOMED`` names."""

    def __init__(self, classes: int = 4, channels: int = 3) -> None:
        super().__init__(classes, channels)
        if "MICRO_LOG" in os.environ:
            with Path(os.environ["MICRO_LOG"]).open("a") as log:
                log.write(f"{_node()}\n")

    def forward(self, images: Tensor) -> Tensor:
        doomed = os.environ.get("MICRO_DOOMED")
        while self.training and doomed is not None and Path(doomed).read_text() == _node():
            time.sleep(0.1)
        return super().forward(images)


def _node() -> str:
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        return str(sys.modules["ray"].get_runtime_context().get_node_id())
    return str(os.getpid())


class InlineEngine:
    """Does cells at once, in this process; ``hook`` may answer in a worker's place."""

    def __init__(self, hook: Callable[[BenchCell], Outcome | None] | None = None) -> None:
        self.done: list[str] = []
        self.hook = hook

    free = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[[], Outcome]) -> "Future[Outcome]":
        assert isinstance(work, partial)
        cell = work.args[1]
        self.done.append(cell.digest)
        future: Future[Outcome] = Future()
        try:
            future.set_result((self.hook(cell) if self.hook else None) or work())
        except ChildProcessError as error:
            future.set_exception(error)
        return future
