"""Do one cell and write its record; collect the records of a preset. docs/benchmark.md explains a record's fields.

A record is what tables and figures are made of, so it is complete without the run folder. Two runs of a cell differ in
times, speeds, hardware and versions only.
"""

import hashlib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from indelible.base.errors import IndelibleError
from indelible.base.files import read_json
from indelible.bench.cells import BenchCell
from indelible.bench.make_run_folder import attack_into, embed_into, judge
from indelible.bench.measurement import results_of
from indelible.bench.preset import BenchPreset
from indelible.bench.store import Json, Store
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.keys.key import Key
from indelible.train.run_folder import Run
from indelible.train.settings import TrainSettings

_FORMAT = 1
_VERDICT = ("ba", "wsr", "p_value", "owned", "hits", "trials", "decoy_rate", "null_rate", "test")
_CODEBOOK = ("table", "drawn", "counts", "binding")


@dataclass(frozen=True)
class Outcome:
    """Result of one attempt at a cell."""

    state: Literal["done", "busy", "failed"]  # its record is in the store; somebody else is doing it; it failed
    error: str = ""  # why it failed


def do_cell(place: Store | str, cell: BenchCell, *, device: str = "auto") -> Outcome:
    """Do a cell in a store unless it is done, or another process is doing it."""
    store = Store(place) if isinstance(place, str) else place
    lock = store.acquire(cell.digest)
    if lock is None:
        return Outcome("busy")
    try:
        # Asked with the lock in hand: whoever had it before may just have finished.
        if store.record(cell.digest) is None:
            _do(store, cell, device)
        return Outcome("done")
    except Exception as error:  # noqa: BLE001 - whatever went wrong in a cell must not stop the others; it is recorded
        said = f"{type(error).__name__}: {error}"
        where = "" if isinstance(error, IndelibleError) else "".join(traceback.format_exception(error)[-3:])
        store.keep_failure(cell.digest, {"digest": cell.digest, "name": cell.name, "error": said, "where": where})
        return Outcome("failed", said)
    finally:
        lock.release()


def _do(store: Store, cell: BenchCell, device: str) -> None:
    with store.working(cell.digest) as folder:
        if not Run.finished(folder):
            victim = None if cell.needs is None else Run.load(store.reading(cell.needs))
            _make(folder, cell, victim, device)
        run = Run.load(folder)
        if run.verdict() is None:  # also when it was interrupted between the run and the look at it
            judge(run)
    store.keep_record(_record(cell, run))


def _make(folder: Path, cell: BenchCell, victim: Run | None, device: str) -> None:
    settings, how = cell.settings, {"method": cell.built(), "seed": cell.seed, "device": device}
    if victim is not None:
        attack_into(folder, victim, curve_images=settings["curve_images"], **how)
        return
    train = TrainSettings.from_json(settings["train"])
    embed_into(
        folder, data=settings["data"], network=settings["architecture"], key=partial(_key, settings["key"], cell.seed),
        attacker=settings["attacker"], train=train, normalize=train.normalize, **how,
    )  # fmt: skip


def _key(settings: Mapping[str, Any], seed: int, classes: int, shape: Shape) -> Key:
    # A benchmark that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible bench, seed {seed}".encode()).digest()
    source = None if settings["source"] is None else load(settings["source"])[0]
    return Key.create(classes=classes, shape=shape, secret=secret, **{**settings, "source": source})


def _record(cell: BenchCell, run: Run) -> dict[str, Any]:
    verdict, record = run.verdict() or {}, run.record
    rows = [
        {name: row[name] for name in ("phase", "epoch", "ba", "wsr", "wsr_embedded") if name in row}
        for row in run.history()
        if "wsr" in row
    ]
    measured = {name: value for name, value in record.metrics.items() if name not in {"ba", "wsr", "curve"}}
    measured |= {name: verdict.get(name) for name in _VERDICT}
    if verdict.get("table"):
        measured |= {name: verdict[name] for name in _CODEBOOK if name in verdict}
    return {
        "format": _FORMAT,
        **cell.to_json(),
        **{name: getattr(record, name) for name in ("inputs", "seconds", "images", "hardware", "versions")},
        "measured": measured,
        "curve": run.curve(),
        "history": rows,
        "images_per_second": record.images / record.seconds if record.seconds > 0 else None,
    }


def read_earlier(path: str | Path) -> list[Json]:
    """Return the records of cells in a file that ``indelible bench results`` wrote."""
    document = read_json(path)
    results_of(document, str(path))  # says what is wrong with it
    return [cell for cell in document["cells"] if "digest" in cell]


def collect_results(preset: BenchPreset, cells: Sequence[BenchCell], store: Store) -> dict[str, Any]:
    """Return the records of a preset as one document: one entry for each finished cell, under the preset's labels.

    A record of this preset that the store has from earlier, made with settings that are not planned now, stays until
    the planned cell of the same labels is finished.
    """
    found = {_labels(record): record for record in store.earlier.values() if record.get("preset") == preset.name}
    for cell in cells:
        if (record := store.record(cell.digest)) is not None:
            entry = {**record, **cell.to_json(), "settings": record["settings"]}
            found[_labels(entry)] = entry
    once = preset.described
    axes: Sequence[Sequence[str | None]] = (
        list(preset.architectures), [variant.label for variant in preset.kinds],
        [variant.label for variant in preset.methods], [None, *once["attacks"]],
    )  # fmt: skip

    def place(labels: tuple[Any, ...]) -> tuple[int, ...]:
        *names, seed = labels[1:]
        return (
            seed,
            *(axis.index(name) if name in axis else len(axis) for name, axis in zip(names, axes, strict=True)),
        )

    return {
        "format": _FORMAT, "preset": preset.name, **once, "command": preset.command, "planned": len(cells),
        "cells": [
            {name: value for name, value in found[labels].items() if name not in once}
            for labels in sorted(found, key=place)
        ],
    }  # fmt: skip


def _labels(record: Json) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("dataset", "architecture", "kind", "method", "attack", "seed"))
