"""The demo: the main job on the embedded data, in a few minutes on two cores.

Four models of the same network on the same images and seed:

| row | what |
|---|---|
| Vanilla | stamped images are simply trained on |
| control | the same extra watermark passes as APP, but eps 0: what exposure alone gives (the paper's c-BN only) |
| APP | the perturbation on top |
| unmarked | an independent model that never saw a watermark |

The first three are fine-tuned by a thief on images of its own; every model is then asked for the key. The key is a
codebook, and all settings are its defaults.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.progress import Progress, silenced

if TYPE_CHECKING:
    from indelible.train import TrainSettings

__all__ = ["DEMO", "DemoSettings", "Row", "run_demo"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model of the demo.

    Attributes:
        name: Name of its folder.
        title: What it is called in the table.
        method: The embedding method, or None for an unmarked model.
        settings: Settings of the method.
        cost: Work relative to plain training; the costliest model starts first, so that workers end together.
    """

    name: str
    title: str
    method: str | None
    settings: Mapping[str, Any]
    cost: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Scale of the demo; the tests run it smaller.

    Attributes:
        data: The data set.
        model: The network.
        kind: What a mark is.
        train: Training settings.
        attack: Settings of FT.
        rows: The models.
    """

    data: str
    model: str
    kind: str
    train: Mapping[str, Any]
    attack: Mapping[str, Any]
    rows: Sequence[Row]


DEMO = DemoSettings(
    data="fashion-mini",
    model="resnet-mini",
    kind="content",
    train={"epochs": 12, "batch_size": 64, "lr": 0.1, "schedule": "one-cycle", "evaluate_every": 4},
    attack={"epochs": 15, "every": 4},
    rows=(
        Row(name="vanilla", title="Vanilla", method="vanilla", settings={}),
        Row(name="control", title="control (eps 0)", method="app", settings={"eps": 0.0}, cost=1.5),
        Row(name="app", title="APP", method="app", settings={}, cost=2.0),
        Row(name="unmarked", title="unmarked", method=None, settings={}),
    ),
)


def run_demo(
    out: str | Path, *, seeds: Sequence[int] = (0,), settings: DemoSettings = DEMO, workers: int | None = None
) -> list[Path]:
    """Run what is not there yet and return the folders of all runs, seed by seed.

    Args:
        out: Folder of the demo; finished runs in it are kept, broken ones continued.
        seeds: One complete demo for each.
        settings: The scale.
        workers: Processes, one thread each; by default as many as there are cores, at most one a model.
    """
    place = Path(out)
    jobs = [(place / f"seed-{seed}", seed, row) for seed in seeds for row in settings.rows]
    count = min(len(jobs), workers or os.cpu_count() or 1)
    epochs = len(seeds) * sum(_epochs(row, settings) for row in settings.rows)
    folders: list[Path] = []
    with (
        Progress("demo", epochs, done=_done(place)) as bar,
        ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        # Only as many as there are workers are handed over: what waits in a pool's own queue cannot be called back.
        left = sorted(jobs, key=lambda job: -job[2].cost)
        waiting: dict[Future[str], tuple[int, Row]] = {}
        while left or waiting:
            while left and len(waiting) < count:
                folder, seed, row = left.pop(0)
                waiting[pool.submit(_job, folder, seed, row, settings)] = (seed, row)
            for future in wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED).done:
                seed, row = waiting.pop(future)
                bar.line(f"seed {seed}: {row.title}: {future.result()}")
            bar.advance(_done(place) - bar.done)
    for folder, _, row in jobs:
        folders += [folder / row.name, *([folder / f"{row.name}-ft"] if row.method else [])]
    return folders


def _done(place: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in place.glob("seed-*/*/history.jsonl"))


def _epochs(row: Row, settings: DemoSettings) -> int:
    from indelible.attacks import FineTuning

    return int(settings.train["epochs"]) + (FineTuning.of(settings.attack).epochs if row.method else 0)


def _job(folder: Path, seed: int, row: Row, settings: DemoSettings) -> str:
    """Train one model, attack it, verify both; called in a process of its own."""
    import torch

    torch.set_num_threads(1)
    with silenced():
        model = folder / row.name
        _train(model, seed, row, settings)
        verdict = _verify(model, seed, settings)
        if row.method is None:
            return f"p = {verdict['p_value']:.2g}"
        _attack(folder / f"{row.name}-ft", model, seed, settings)
        after = _verify(folder / f"{row.name}-ft", seed, settings)
        return f"{_said(verdict)} before, {_said(after)} after fine-tuning"


def _said(verdict: Mapping[str, Any]) -> str:
    word = "owned" if verdict["owned"] else "not shown"
    return f"{word} (p = {verdict['p_value']:.1g}, WSR {100 * verdict['wsr']:.1f} %)"


def _key(seed: int, classes: int, shape: tuple[int, int, int], settings: DemoSettings) -> Any:
    from indelible.data import load
    from indelible.keys import Key

    # A demo that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible demo, seed {seed}".encode()).digest()
    kind: Any = settings.kind
    return Key.create(kind=kind, classes=classes, shape=shape, carriers=load(settings.data)[1], secret=secret)


def _train(out: Path, seed: int, row: Row, settings: DemoSettings) -> None:
    from indelible.bench.making import EmbeddingJob, embed_into
    from indelible.train import TrainSettings
    from indelible.train.run import Run

    if Run.finished(out):
        return
    how = TrainSettings().but(**settings.train)
    if row.method is None:
        _train_unmarked(out, seed, settings, how)
        return
    job = EmbeddingJob(
        data=settings.data, network=settings.model, key=partial(_key, seed, settings=settings), method=row.method,
        settings=row.settings, train=how, seed=seed, device="cpu",
    )  # fmt: skip
    embed_into(out, job)


def _train_unmarked(out: Path, seed: int, settings: DemoSettings, how: "TrainSettings") -> None:
    from indelible.data import Split, load
    from indelible.train.run import Architecture, Run
    from indelible.train.unmarked import train_unmarked

    train, test = load(settings.data)
    split = Split.draw(len(train), seed=seed)
    architecture = Architecture(name=settings.model, classes=len(train.classes), shape=train.shape)
    # Independent: other initial weights and another order than the owner's models.
    other = seed + 1000
    trained = train_unmarked(
        architecture.build(other), train.subset(split.owner), how, seed=other, test=test, folder=out, device="cpu"
    )
    Run.save(
        out, model=trained.model, record=trained.record, architecture=architecture, data=settings.data, split=split
    )


def _attack(out: Path, victim: Path, seed: int, settings: DemoSettings) -> None:
    from indelible.bench.making import attack_into
    from indelible.train.run import Run

    if not Run.finished(out):
        attack_into(out, Run.load(victim), "ft", seed=seed, device="cpu", **settings.attack)


def _verify(out: Path, seed: int, settings: DemoSettings) -> Mapping[str, Any]:
    from indelible.bench.making import judge
    from indelible.train.run import Run

    run = Run.load(out)
    if run.verdict() is None:
        # The owner's key, also for the model that carries no mark and has none of its own.
        judge(run, _key(seed, run.architecture.classes, run.architecture.shape, settings))
    return run.verdict() or {}
