"""Do one cell in its run folder; collect the finished cells of a preset in one file of results."""

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
from indelible.bench.make_run_folder import attack_into, embed_into
from indelible.bench.measurement import results_of
from indelible.bench.preset import BenchPreset
from indelible.bench.store import Store
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.keys.key import Key
from indelible.train.run_folder import Json, Run
from indelible.train.settings import TrainSettings

_FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """Result of one attempt at a cell."""

    state: Literal["done", "busy", "failed"]  # it is in the store; somebody else is doing it; it failed
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
        if Run.finished(folder):  # and killed before its folder was copied to the store's URL
            return
        settings = cell.settings
        how = {"method": cell.built(), "seed": cell.seed, "device": device, "cell": cell.to_json()}
        if cell.needs is not None:
            victim = Run.load(store.reading(cell.needs))
            attack_into(folder, victim, curve_images=settings["curve_images"], **how)
            return
        train = TrainSettings.from_json(settings["train"])
        embed_into(
            folder, data=settings["data"], network=settings["architecture"],
            key=partial(_key, settings["key"], cell.seed), attacker=settings["attacker"], train=train,
            normalize=train.normalize, **how,
        )  # fmt: skip


def _key(settings: Mapping[str, Any], seed: int, classes: int, shape: Shape) -> Key:
    # A benchmark that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible bench, seed {seed}".encode()).digest()
    source = None if settings["source"] is None else load(settings["source"])[0]
    return Key.create(classes=classes, shape=shape, secret=secret, **{**settings, "source": source})


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
