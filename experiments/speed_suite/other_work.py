"""Work other than training steps: each attack, verification, and a grid of cells by the number of workers.

Attacks run at their smallest, on random images: what is compared is the time of an image pass, not what they achieve.
"""

import tempfile
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from indelible.attacks import ATTACKS, attack
from indelible.base.progress import silenced
from indelible.bench.cells import data_digests, plan_cells, select
from indelible.bench.engines import LocalEngine, cores
from indelible.bench.preset import load_preset
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from indelible.keys.key import Key
from indelible.train.evaluate import accuracy
from indelible.verification import verify
from speed_suite.clock import seconds_of
from speed_suite.steps import PLAIN, Round, Scene

__all__ = ["attacks_round", "grid_round", "verify_round"]

FORWARD = "forward pass"
_SMALL = "smoke"
_PATTERN = "*/content/vanilla/*"
_DECOYS = 2


def attacks_round(scene: Scene, names: Sequence[str] = ()) -> Round:
    """Return what times some attacks, by default all: seconds an image pass, and a plain step's beside."""
    plain, _ = scene.work(PLAIN)
    victim, images = scene.model(), scene.data
    smallest: Mapping[str, Mapping[str, Any]] = {
        variant.name: {name: value for name, value in variant.settings.items() if name != "scale"}
        for variant in load_preset(_SMALL).attacks
    }

    def measure(_known: Container[str] = ()) -> Iterator[tuple[str, float]]:
        yield PLAIN, seconds_of(plain, scene.device) / scene.batch_size
        for name in names or ATTACKS:
            fields = ATTACKS[name].build.__dataclass_fields__
            settings = smallest.get(name, {"epochs": 1} if "epochs" in fields else {})
            passed: list[int] = []

            def work(name: str = name, settings: Mapping[str, Any] = settings, passed: list[int] = passed) -> None:
                value = ATTACKS[name].build.at_scale(**settings)
                done = attack(victim, images, value, device=str(scene.device))
                passed.append(done.record.images)

            with silenced():
                seconds = seconds_of(work, scene.device)
            yield name.upper(), seconds / max(1, passed[0])

    return measure


def verify_round(scene: Scene) -> Round:
    """Return what times a verdict: seconds a query, and an image of a plain evaluation beside it."""
    model, data = scene.model().eval(), scene.data
    key = Key.create(kind="content", classes=len(data.classes), shape=scene.shape, target=0, secret=bytes(32))

    def measure(_known: Container[str] = ()) -> Iterator[tuple[str, float]]:
        asked: list[int] = []

        def work() -> None:
            asked.append(verify(model, key, data, decoys=_DECOYS).queries)

        yield FORWARD, seconds_of(lambda: accuracy(model, data), scene.device) / len(data)
        seconds = seconds_of(work, scene.device)
        yield "verification", seconds / asked[0]

    return measure


def grid_round(workers: tuple[int, ...] = ()) -> Round:
    """Return what times some cells of the preset ``smoke`` by workers: seconds a cell (wall time).

    Each number of workers does the same cells in a store of its own; the start of the processes counts.
    """
    preset = load_preset(_SMALL)
    cells = select(plan_cells(preset, data_digests(preset)), _PATTERN)
    counts = workers or tuple(range(1, cores() + 1))

    def measure(known: Container[str] = ()) -> Iterator[tuple[str, float]]:
        for count in counts:
            if by_workers(count) in known:
                continue
            with tempfile.TemporaryDirectory() as folder, silenced():
                began = time.perf_counter()
                run_cells(Board(cells), Store(Path(folder)), LocalEngine(count, threads=1), device="cpu")
                seconds = time.perf_counter() - began
            yield by_workers(count), seconds / len(cells)

    return measure


def by_workers(count: int) -> str:
    """Return what the case of so many workers is called."""
    return f"{count} worker" + ("" if count == 1 else "s")


def pass_device(name: str) -> torch.device:
    """Return the device that ``name`` means for a measurement."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
