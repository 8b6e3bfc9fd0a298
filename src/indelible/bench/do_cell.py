"""Do one cell: embed or attack in its run folder, verify, and write its record.

The record is what tables and figures are made of, so it is complete without the run folder:

| field | what |
|---|---|
| ``digest``, ``verb``, ``needs`` | which cell it is, and the model cell that it attacks |
| ``dataset``, ``architecture``, ``kind``, ``method``, ``attack``, ``seed`` | labels; ``attack`` is null for a model |
| ``settings`` | all settings, defaults included |
| ``inputs`` | digests of data, key and model that went in |
| ``measured`` | ``ba``, ``wsr``, ``p_value``, ``owned``, hits, trials, null rate; figures that an attack noted |
| ``measured`` of a codebook | also ``table``, ``drawn``, ``counts`` and ``binding``: the picture of marks and classes |
| ``reported`` | ``ba`` and ``wsr`` of the paper, or null |
| ``curve``, ``history`` | rates at every strength of an attack; rates by epoch of a model |
| ``seconds``, ``images``, ``images_per_second`` | of all sessions of the run, without evaluation |
| ``hardware``, ``versions``, ``command`` | on what, with what, and how to do it again |

Rates are fractions. Two runs of a cell differ in ``seconds``, ``images_per_second`` and what is in
``TIME_FIELDS`` of the history, in nothing else.
"""

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from indelible.attacks import ATTACKS
from indelible.base.errors import IndelibleError
from indelible.bench.cells import BenchCell
from indelible.bench.make_run_folder import attack_into, embed_into, judge
from indelible.bench.store import Store
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import Key
from indelible.train.run_folder import Run
from indelible.train.settings import TrainSettings

_FORMAT = 1
_VERDICT = ("ba", "wsr", "p_value", "owned", "hits", "trials", "decoy_rate", "null_rate", "test")
_CODEBOOK = ("table", "drawn", "counts", "binding")
VOLATILE = ("seconds", "images_per_second", "hardware", "versions")
"""Fields of a record that say how it was made, not its results."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one attempt at a cell."""

    digest: str  # the cell
    # `"done"`: its record is in the store; `"busy"`: somebody else is doing it; `"failed"`; `"lost"`: the process that
    # did it is gone
    state: Literal["done", "busy", "failed", "lost"]
    error: str = ""  # why it failed


def do_cell(store: Store, cell: BenchCell, *, device: str = "auto", more: Mapping[str, Any] | None = None) -> Outcome:
    """Do a cell unless it is done, or another process is doing it; ``more`` are fields to add to its record."""
    lock = store.acquire(cell.digest)
    if lock is None:
        return Outcome(digest=cell.digest, state="busy")
    try:
        # Asked with the lock in hand: whoever had it before may just have finished.
        if store.record(cell.digest) is None:
            _do(store, cell, device, more or {})
        return Outcome(digest=cell.digest, state="done")
    except Exception as error:  # noqa: BLE001 - whatever went wrong in a cell must not stop the others; it is recorded
        said = f"{type(error).__name__}: {error}"
        where = "" if isinstance(error, IndelibleError) else "".join(traceback.format_exception(error)[-3:])
        store.keep_failure(cell.digest, {"digest": cell.digest, "name": cell.name, "error": said, "where": where})
        return Outcome(digest=cell.digest, state="failed", error=said)
    finally:
        lock.release()


def _do(store: Store, cell: BenchCell, device: str, more: Mapping[str, Any]) -> None:
    with store.working(cell.digest) as folder:
        if Run.finished(folder):
            run = Run.load(folder)
        elif cell.needs is None:
            run = _embed(cell, folder, device)
        else:
            with store.reading(cell.needs) as victim:
                run = _attack(cell, folder, victim, device)
        if run.verdict() is None:  # also when it was interrupted between the run and the look at it
            judge(run)
        record = _record(cell, run, more)
    store.keep_record(record)


def _embed(cell: BenchCell, folder: Path, device: str) -> Run:
    settings = cell.settings
    how = TrainSettings.from_json(settings["train"])
    run = embed_into(
        folder, data=settings["data"], network=settings["architecture"],
        key=partial(_key, settings["key"], cell.seed), attacker=settings["attacker"], seed=cell.seed,
        method=EMBEDDINGS[settings["method"]].build.of(settings["method_settings"]),
        train=how, normalize=how.normalize, device=device,
    )  # fmt: skip
    if run is None:
        raise RuntimeError("a cell runs in one process")
    return run


def _attack(cell: BenchCell, folder: Path, victim: Path, device: str) -> Run:
    settings = cell.settings
    attack = ATTACKS[settings["attack"]].build.of(settings["attack_settings"])
    return attack_into(
        folder, Run.load(victim), attack, seed=cell.seed, device=device, curve_images=settings["curve_images"]
    )


def _key(settings: Mapping[str, Any], seed: int, classes: int, shape: Shape) -> Key:
    # A benchmark that gives the same table twice needs a fixed secret; a real key draws its own.
    secret = hashlib.sha256(f"indelible bench, seed {seed}".encode()).digest()
    values = dict(settings)
    source = values.pop("source")
    return Key.create(
        classes=classes, shape=shape, secret=secret, source=None if source is None else load(source)[0], **values
    )


def _record(cell: BenchCell, run: Run, more: Mapping[str, Any]) -> dict[str, Any]:
    verdict, record = run.verdict() or {}, run.record
    rows = [
        {name: row[name] for name in ("phase", "epoch", "ba", "wsr", "wsr_embedded") if name in row}
        for row in run.history()
        if "wsr" in row
    ]
    noted = {name: value for name, value in record.metrics.items() if name not in {"ba", "wsr", "curve"}}
    return {
        "format": _FORMAT,
        **cell.to_json(),
        "inputs": dict(record.inputs),
        "measured": {**noted, **{name: verdict.get(name) for name in _VERDICT}, **_codebook(verdict)},
        "reported": None,
        "curve": run.curve(),
        "history": rows,
        "seconds": record.seconds,
        "images": record.images,
        "images_per_second": record.images / record.seconds if record.seconds > 0 else None,
        "hardware": dict(record.hardware),
        "versions": dict(record.versions),
        **more,
    }


def _codebook(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the picture of a codebook's verdict needs; nothing for other keys, whose records stay as they are."""
    return {name: verdict[name] for name in _CODEBOOK if name in verdict} if verdict.get("table") else {}
