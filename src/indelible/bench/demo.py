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
from typing import Any

import torch

from indelible.attacks import FineTuning
from indelible.base.progress import Progress, silenced
from indelible.bench.make_run_folder import attack_into, embed_into, judge
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.data.splits import Split
from indelible.keys.key import Key
from indelible.train import TrainSettings
from indelible.train.fit import train_unmarked
from indelible.train.run_folder import Architecture, Run


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One model of the demo: its folder, its title, and the method with its settings; None for an unmarked model.

    ``cost`` is the work relative to plain training: the costliest model starts first, so that workers end together.
    """

    name: str
    title: str
    method: str | None
    settings: Mapping[str, Any]
    cost: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Scale of the demo; the tests run it smaller. ``attack`` are the settings of FT."""

    data: str
    model: str
    kind: str
    train: Mapping[str, Any]
    attack: Mapping[str, Any]
    rows: Sequence[DemoRow]


DEMO = DemoSettings(
    data="fashion-mini",
    model="resnet-mini",
    kind="content",
    train={"epochs": 12, "batch_size": 64, "lr": 0.1, "schedule": "one-cycle", "evaluate_every": 4},
    attack={"epochs": 15, "every": 4},
    rows=(
        DemoRow(name="vanilla", title="Vanilla", method="vanilla", settings={}),
        DemoRow(name="control", title="control (eps 0)", method="app", settings={"eps": 0.0}, cost=1.5),
        DemoRow(name="app", title="APP", method="app", settings={}, cost=2.0),
        DemoRow(name="unmarked", title="unmarked", method=None, settings={}),
    ),
)


def run_demo(
    out: str | Path, *, seeds: Sequence[int] = (0,), settings: DemoSettings = DEMO, workers: int | None = None
) -> list[Path]:
    """Run what is not there yet and return the folders of all runs, seed by seed; broken runs are continued.

    There are as many processes as cores, at most one a model, of one thread each, unless ``workers`` says otherwise.
    """
    place = Path(out)
    jobs = [(place / f"seed-{seed}", seed, row) for seed in seeds for row in settings.rows]
    count = min(len(jobs), workers or os.cpu_count() or 1)
    tuning = FineTuning.of(settings.attack).epochs
    epochs = sum(settings.train["epochs"] + (tuning if row.method else 0) for _, _, row in jobs)
    with (
        Progress("demo", epochs, done=_done(place)) as bar,
        ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        # Only as many as there are workers are submitted: what waits in a pool's own queue cannot be called back.
        left = sorted(jobs, key=lambda job: -job[2].cost)
        waiting: dict[Future[str], tuple[int, DemoRow]] = {}
        while left or waiting:
            while left and len(waiting) < count:
                folder, seed, row = left.pop(0)
                waiting[pool.submit(_job, folder, seed, row, settings)] = (seed, row)
            for future in wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED).done:
                seed, row = waiting.pop(future)
                bar.line(f"seed {seed}: {row.title}: {future.result()}")
            bar.advance(_done(place) - bar.done)
    folders: list[Path] = []
    for folder, _, row in jobs:
        folders += [folder / row.name, *([folder / f"{row.name}-ft"] if row.method else [])]
    return folders


def _done(place: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in place.glob("seed-*/*/history.jsonl"))


def _job(folder: Path, seed: int, row: DemoRow, settings: DemoSettings) -> str:
    """Train one model, attack it, verify both; called in a process of its own."""
    torch.set_num_threads(1)
    with silenced():
        model, attacked = folder / row.name, folder / f"{row.name}-ft"
        if not Run.finished(model):
            (_train if row.method else _train_unmarked)(model, seed, row, settings)
        before = _verdict(model, seed, settings)
        if row.method is None:
            return f"p = {before['p_value']:.2g}"
        if not Run.finished(attacked):
            attack_into(attacked, Run.load(model), "ft", scale="paper", seed=seed, device="cpu", **settings.attack)
        return f"{_said(before)} before, {_said(_verdict(attacked, seed, settings))} after fine-tuning"


def _said(verdict: Mapping[str, Any]) -> str:
    word = "owned" if verdict["owned"] else "not shown"
    return f"{word} (p = {verdict['p_value']:.1g}, WSR {100 * verdict['wsr']:.1f} %)"


def _key(seed: int, classes: int, shape: Shape, settings: DemoSettings) -> Key:
    # A demo that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible demo, seed {seed}".encode()).digest()
    kind: Any = settings.kind
    return Key.create(kind=kind, classes=classes, shape=shape, carriers=load(settings.data)[1], secret=secret)


def _train(out: Path, seed: int, row: DemoRow, settings: DemoSettings) -> None:
    embed_into(
        out, data=settings.data, network=settings.model, key=partial(_key, seed, settings=settings),
        method=str(row.method), scale="paper", train=TrainSettings().but(**settings.train), seed=seed, device="cpu",
        **row.settings,
    )  # fmt: skip


def _train_unmarked(out: Path, seed: int, _row: DemoRow, settings: DemoSettings) -> None:
    train, test = load(settings.data)
    split = Split.draw(len(train), seed=seed)
    architecture = Architecture(name=settings.model, classes=len(train.classes), shape=train.shape)
    # Independent: other initial weights and another order than the owner's models.
    other = seed + 1000
    trained = train_unmarked(
        architecture.build(other), train.subset(split.owner), TrainSettings().but(**settings.train), seed=other,
        test=test, folder=out, device="cpu",
    )  # fmt: skip
    Run.save(
        out, model=trained.model, record=trained.record, architecture=architecture, data=settings.data, split=split
    )


def _verdict(out: Path, seed: int, settings: DemoSettings) -> Mapping[str, Any]:
    run = Run.load(out)
    if run.verdict() is None:
        # The owner's key, also for the model that carries no mark and has none of its own.
        judge(run, _key(seed, run.architecture.classes, run.architecture.shape, settings))
    return run.verdict() or {}
