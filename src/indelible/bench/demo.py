"""The demo: the main job on the embedded data, in a few minutes on two cores.

``assets/demo.toml``, a preset, says what it makes: Vanilla, the control, APP, and an independent model without a mark,
of the same network on the same images; docs/demo.md says how. All but the last are fine-tuned by a thief on images of
its own; every model is then asked for the key.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from indelible.attacks import FineTuning
from indelible.base.progress import Progress
from indelible.bench.engines import LocalEngine, cores
from indelible.bench.make_run_folder import attack_into, embed_into, verdict_of
from indelible.bench.preset import BenchPreset, Variant, read_preset
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.data.splits import Split
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import Key
from indelible.train import TrainSettings
from indelible.train.job import train_unmarked
from indelible.train.run_folder import Architecture, Run, history_of

_UNMARKED = "none"
DEMO = read_preset("demo", (resources.files("indelible.bench") / "assets/demo.toml").read_text(encoding="utf-8"))


def run_demo(
    out: str | Path, *, seeds: Sequence[int] = (0,), preset: BenchPreset = DEMO, workers: int | None = None
) -> list[Path]:
    """Run what is not there yet and return the folders of all runs, seed by seed; broken runs are continued.

    There are as many processes as cores, at most one a model, of one thread each, unless ``workers`` says otherwise.
    """
    place = Path(out)
    jobs = [(place / f"seed-{seed}", seed, row) for seed in seeds for row in preset.methods]
    tuning = preset.attacks[0].settings["epochs"]
    epochs = sum(preset.train["epochs"] + (tuning if row.name != _UNMARKED else 0) for _, _, row in jobs)
    with (
        Progress("demo", epochs, done=_done(place)) as bar,
        LocalEngine(workers or cores(), threads=1) as engine,
    ):
        left = jobs[::-1]  # the costliest, APP, is among the first, so that workers end together
        waiting: dict[Future[str], str] = {}
        while left or waiting:
            while left and engine.free:
                folder, seed, row = left.pop(0)
                future = engine.submit(partial(_job, folder, seed, row, preset))
                waiting[future] = f"seed {seed}: {row.label}"
            for future in wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED).done:
                bar.line(f"{waiting.pop(future)}: {future.result()}")
            bar.advance(_done(place) - bar.done)
    folders: list[Path] = []
    for folder, _, row in jobs:
        folders += [folder / row.label, *([folder / f"{row.label}-ft"] if row.name != _UNMARKED else [])]
    return folders


def _done(place: Path) -> int:
    return sum(len(history_of(folder)) for folder in place.glob("seed-*/*/"))


def _job(folder: Path, seed: int, row: Variant, preset: BenchPreset) -> str:
    """Train one model, attack it, verify both; called in a process of its own."""
    model, attacked = folder / row.label, folder / f"{row.label}-ft"
    if not Run.finished(model):
        _train(model, seed, row, preset)
    before = Run.load(model).verdict or {}
    if row.name == _UNMARKED:
        return f"p = {before['p_value']:.2g}"
    if not Run.finished(attacked):
        tuning = FineTuning.at_scale(preset.train_scale, **preset.attacks[0].settings)
        attack_into(attacked, Run.load(model), tuning, scale=preset.train_scale, seed=seed, device="cpu")
    return f"{_said(before)} before, {_said(Run.load(attacked).verdict or {})} after fine-tuning"


def _said(verdict: Mapping[str, Any]) -> str:
    word = "owned" if verdict["owned"] else "not shown"
    return f"{word} (p = {verdict['p_value']:.1g}, WSR {100 * verdict['wsr']:.1f} %)"


def _key(seed: int, classes: int, shape: Shape, preset: BenchPreset) -> Key:
    # A demo that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible demo, seed {seed}".encode()).digest()
    return Key.create(classes=classes, shape=shape, carriers=load(preset.data)[1], secret=secret)


def _train(out: Path, seed: int, row: Variant, preset: BenchPreset) -> None:
    how = TrainSettings().but(**preset.train)
    if row.name != _UNMARKED:
        method = partial(EMBEDDINGS[row.name].build.for_key, scale=preset.train_scale, **row.settings)
        embed_into(
            out, data=preset.data, network=preset.architectures[0], key=partial(_key, seed, preset=preset),
            method=method, train=how, seed=seed, device="cpu",
        )  # fmt: skip
        return
    train, test = load(preset.data)
    split = Split.draw(len(train), seed=seed)
    architecture = Architecture(name=preset.architectures[0], classes=len(train.classes), shape=train.shape)
    # Independent: other initial weights and another order than the owner's models.
    other = seed + 1000
    model, images = architecture.build(other), train.subset(split.owner)
    done = train_unmarked(model, images, how, seed=other, test=test, folder=out, device="cpu")
    # The owner's key: the model carries no mark and has none of its own.
    owners = _key(seed, architecture.classes, architecture.shape, preset)
    Run.save(
        out, model=done.model, record=done.record, architecture=architecture, data=preset.data, split=split,
        verdict=partial(verdict_of, key=owners), history=done.history,
    )  # fmt: skip
