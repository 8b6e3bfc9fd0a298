"""The demo: the main job on the embedded data, in a few minutes on two cores.

Four models of the same network on the same images: Vanilla; the control, with APP's extra watermark passes but eps 0;
APP; and an independent model that never saw a watermark. docs/demo.md says how. The first three are fine-tuned by a
thief on images of its own; every model is then asked for the key.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
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
from indelible.train.job import train_unmarked
from indelible.train.run_folder import Architecture, Run


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One model of the demo: its folder, and the method with its settings; None for an unmarked model.

    ``cost`` is the work relative to plain training: the costliest model starts first, so that workers end together.
    """

    name: str
    method: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Scale of the demo; the tests run it smaller. ``attack`` are the settings of FT."""

    data: str
    model: str
    train: Mapping[str, Any]
    attack: Mapping[str, Any]
    rows: Sequence[DemoRow]


DEMO = DemoSettings(
    data="fashion-mini",
    model="resnet-mini",
    train={"epochs": 12, "batch_size": 64, "lr": 0.1, "schedule": "one-cycle", "evaluate_every": 4},
    attack={"epochs": 15, "every": 4},
    rows=(
        DemoRow(name="vanilla", method="vanilla"),
        DemoRow(name="control", method="app", settings={"eps": 0.0}, cost=1.5),
        DemoRow(name="app", method="app", cost=2.0),
        DemoRow(name="unmarked", method=None),
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
                bar.line(f"seed {seed}: {row.name}: {future.result()}")
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
            _train(model, seed, row, settings)
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
    return Key.create(classes=classes, shape=shape, carriers=load(settings.data)[1], secret=secret)


def _train(out: Path, seed: int, row: DemoRow, settings: DemoSettings) -> None:
    how = TrainSettings().but(**settings.train)
    if row.method is not None:
        key = partial(_key, seed, settings=settings)
        embed_into(
            out, data=settings.data, network=settings.model, key=key, method=row.method, scale="paper", train=how,
            seed=seed, device="cpu", **row.settings,
        )  # fmt: skip
        return
    train, test = load(settings.data)
    split = Split.draw(len(train), seed=seed)
    architecture = Architecture(name=settings.model, classes=len(train.classes), shape=train.shape)
    # Independent: other initial weights and another order than the owner's models.
    other = seed + 1000
    model, images = architecture.build(other), train.subset(split.owner)
    done = train_unmarked(model, images, how, seed=other, test=test, folder=out, device="cpu")
    Run.save(out, model=done.model, record=done.record, architecture=architecture, data=settings.data, split=split)


def _verdict(out: Path, seed: int, settings: DemoSettings) -> Mapping[str, Any]:
    run = Run.load(out)
    if run.verdict() is None:
        # The owner's key, also for the model that carries no mark and has none of its own.
        judge(run, _key(seed, run.architecture.classes, run.architecture.shape, settings))
    return run.verdict() or {}
