"""How long cells will take: image passes that their settings ask for, divided by measured passes a second.

The speed of a cell is, in this order: the median of finished cells in the store with the same network and the same
method or attack; of any finished cells with the same network; a short measurement of a plain step, here and now, on
the device that a worker would take. An estimate holds for the machine whose speed it uses, which it names. Unknown are
cells whose data is not here and of no known size, and cells of a method from outside the package until one of the same
network and data is finished: its passes are not known.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from indelible.attacks import ATTACKS
from indelible.base.errors import InputError
from indelible.base.records import hardware
from indelible.bench.cells import Cell
from indelible.bench.speed.steps import plain_rate
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.data.options import split_options
from indelible.data.sources import SOURCES
from indelible.embed import EMBEDDINGS
from indelible.embed.app import AdversarialPerturbation
from indelible.train.devices import pinned_threads

__all__ = ["Estimate", "Size", "estimate", "evaluation_passes", "machine", "size_of", "training_passes"]

_BATCH = 16
_DECOYS, _DECOY_SAMPLES = 20, 1000
_TRIED = {"ft-sam": ("rho", 2), "super-ft": ("peak", 1), "fst": ("alpha", 1), "rehearse": ("share", 1)}
"""Attacks that train a model at each of three strengths: the setting that fixes it, and passes a step."""
_TRIALS = 3
_FORWARD_ONLY = 3.0
"""A pass without gradients costs about a third of one with."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What of a data set decides the work.

    Attributes:
        train: Training images.
        test: Test images.
        classes: Number of classes.
        shape: (C, H, W).
    """

    train: int
    test: int
    classes: int
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long some cells take on one worker.

    Attributes:
        seconds: By digest of the cell.
        unknown: Why cells have no estimate, by digest.
        basis: Where the speed comes from, in words, by network.
        machines: What a worker ran on when the speeds were measured, in words.
    """

    seconds: Mapping[str, float]
    unknown: Mapping[str, str]
    basis: Mapping[str, str]
    machines: Sequence[str]

    def hours(self, workers: int) -> float | None:
        """Return the hours of the cells with an estimate on so many workers; None when none has one."""
        if self.unknown and not self.seconds:
            return None
        return sum(self.seconds.values()) / max(1, workers) / 3600


@cache
def size_of(name: str) -> Size:
    """Return the size of a data set; of a named one also when it has not been fetched."""
    try:
        train, test = load(name)
        return Size(train=len(train), test=len(test), classes=len(train.classes), shape=train.shape)
    except InputError:
        bare, options = split_options(name)
        if bare not in SOURCES:
            raise
        known = SOURCES[bare]
        return Size(
            train=options.train or known.train,
            test=options.test or known.test,
            classes=len(known.classes),
            shape=known.shape,
        )


def training_passes(cell: Cell, size: Size, model: Cell) -> float:
    """Return the images that a cell passes forward and backward.

    Args:
        cell: The cell.
        size: Of its data set.
        model: The model cell that it attacks; for a model cell, the cell itself.
    """
    attacked = size.train * model.settings["attacker"]
    if cell.verb == "embed":
        return _embedding(cell.settings, size.train - attacked)
    return _attack(str(cell.settings["attack"]), cell.settings["attack_settings"], attacked, size.classes)


def _embedding(settings: Mapping[str, Any], owned: float) -> float:
    train, own = settings["train"], settings["method_settings"]
    plain: float = train["epochs"] * owned
    extra: float = 0.0
    if settings["method"] == "ew":
        clean = own["pretraining"] * train["epochs"]
        extra = 0.0 if own["epochs"] is None else (clean + own["epochs"] - train["epochs"]) * owned
    elif settings["method"] == "cw":
        noisy = max(0, train["epochs"] - own["start_epoch"])
        extra = noisy * own["levels"] * own["draws"] * own["batches"] * own["rows"]
    elif settings["method"] == "app":
        steps = max(1, round(plain / train["batch_size"]))
        extra = plain * AdversarialPerturbation.of(own).extra_rows(steps) / train["batch_size"]
    elif settings["method"] == "ntl":
        extra = plain * (own["rows"] or train["batch_size"]) / train["batch_size"]
    elif settings["method"] in {"pgd-at", "trades"}:
        extra = plain * (own["steps"] + (2 if settings["method"] == "trades" else 0))
    elif settings["method"] == "rose":
        extra = plain * own["rows"] / train["batch_size"]
    elif settings["method"] == "cae":
        extra = own["share"] * plain * (2 * own["surrogates"] + own["references"] + own["held"])
        extra += own["candidates"] * own["steps"] * (1 + own["surrogates"] + own["references"])
    return plain + extra


def _attack(name: str, own: Mapping[str, Any], images: float, classes: int) -> float:
    epochs: float = own.get("epochs", 1)
    strengths = len(ATTACKS[name].build.strengths)
    if strengths:  # nothing is trained: the stolen model and every strength are measured
        epochs = 0.9 + 0.1 * (strengths + 1) if name == "bnp" else strengths + 1
    elif name == "anp":
        epochs *= 2 + own["steps"]
    elif name == "nad":
        epochs = own["teacher_epochs"] + 2 * own["epochs"]
    elif name == "mcr":
        epochs = own["share"] * own["end_epochs"] + (1 - own["share"]) * (own["epochs"] + own["points"])
    elif name == "nnl":
        searched = (5 if classes >= 100 else 15) if own["cleanse_epochs"] is None else own["cleanse_epochs"]
        epochs = searched * classes + 2 * own["epochs"]
    elif name in _TRIED:
        setting, passes = _TRIED[name]
        epochs *= passes * (_TRIALS if own[setting] is None else 1)
    elif name == "i-bau":
        epochs = 4 * own["rounds"]
    elif name == "sau":
        epochs *= own["rounds"] * (5 + 2 * own["steps"])
    elif name == "rnp":
        epochs = (own["epochs"] + own["unlearn_epochs"]) * min(1.0, own["images"] / images)
    return images * epochs


def evaluation_passes(cell: Cell, size: Size) -> float:
    """Return the images that are passed forward only: the verdict, looks in between, the models of a curve."""
    verdict = 2 * size.test + _DECOYS * min(_DECOY_SAMPLES, size.test)
    if cell.verb == "embed":
        train = cell.settings["train"]
        looks: int = 1 + -(-train["epochs"] // train["evaluate_every"])
        return verdict + 2 * size.test * looks
    name, own = str(cell.settings["attack"]), cell.settings["attack_settings"]
    known = {"fp": 20, "anp": 20, "nnl": 11, "rnp": 20}
    points = known.get(name, len(ATTACKS[name].build.strengths))
    if name in _TRIED and own[_TRIED[name][0]] is None:
        points = _TRIALS
    points = own.get("points", own.get("rounds", points))
    return float(verdict + points * 2 * min(size.test, cell.settings["curve_images"] or size.test))


def estimate(
    cells: Sequence[Cell], models: Mapping[str, Cell], records: Iterable[Mapping[str, Any]], *,
    threads: int | None = None,
) -> Estimate:  # fmt: skip
    """Estimate the time of cells on one worker.

    Args:
        cells: What is to be done.
        models: All model cells of the plan, by digest.
        records: Records of finished cells.
        threads: CPU threads of a worker; by default torch's choice.
    """
    known = _Known(records, threads)
    basis, seconds, unknown = dict[str, str](), dict[str, float](), dict[str, str]()
    for cell in cells:
        try:
            size = size_of(cell.dataset)
        except InputError:
            unknown[cell.digest] = f"the data set {cell.dataset} is not here, and its size is not known"
            continue
        if not _is_ours(cell.settings):
            taken = known.seconds.get((cell.architecture, cell.dataset, _work(cell.settings)))
            if taken is None:
                unknown[cell.digest] = f"what {_work(cell.settings)} costs is not known before a first cell is finished"
            else:
                seconds[cell.digest] = statistics.median(taken)
            continue
        rate, said = known.rate(cell, size)
        basis.setdefault(cell.architecture, said)
        passes = training_passes(cell, size, models[cell.needs or cell.digest])
        seconds[cell.digest] = (passes + evaluation_passes(cell, size) / _FORWARD_ONLY) / rate
    return Estimate(seconds=seconds, unknown=unknown, basis=basis, machines=sorted(known.machines))


def machine(hardware: Mapping[str, Any]) -> str:
    """Write what a worker ran on: its accelerator, or so many threads of a processor."""
    if "accelerator" in hardware:
        return str(hardware["accelerator"])
    threads = hardware.get("threads", "some")
    return f"{threads} thread{'' if threads == 1 else 's'} of {hardware.get('processor') or 'an unknown processor'}"


class _Known:
    """Speeds and times that were measured, and the machines that they are of."""

    def __init__(self, records: Iterable[Mapping[str, Any]], threads: int | None) -> None:
        self.threads = threads
        self.machines: set[str] = set()
        self.seconds: dict[tuple[str, str, str], list[float]] = {}
        self._rates: dict[tuple[str, str], list[float]] = {}
        self._said: dict[str, str] = {}
        for record in records:
            network, work = record["architecture"], _work(record["settings"])
            self.seconds.setdefault((network, record.get("dataset", ""), work), []).append(record["seconds"])
            if record["images_per_second"]:
                for of in (work, ""):
                    self._rates.setdefault((network, of), []).append(record["images_per_second"])
                self.machines.add(machine(record.get("hardware", {})))
                self._said[network] = "finished cells"

    def rate(self, cell: Cell, size: Size) -> tuple[float, str]:
        """Return image passes a second of a cell, and where that comes from."""
        for work in (_work(cell.settings), ""):
            found = self._rates.get((cell.architecture, work))
            if found:
                return statistics.median(found), self._said[cell.architecture]
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with pinned_threads(self.threads):
            rate = plain_rate(cell.architecture, shape=size.shape, batch_size=_BATCH, device=device)
            here = machine(hardware(device))
        self._rates[cell.architecture, ""] = [rate]
        self._said[cell.architecture] = f"a step measured now: {rate:.0f} images/s on {here}"
        self.machines.add(here)
        return rate, self._said[cell.architecture]


def _work(settings: Mapping[str, Any]) -> str:
    return str(settings.get("attack") or settings["method"])


def _is_ours(settings: Mapping[str, Any]) -> bool:
    registry = ATTACKS if "attack" in settings else EMBEDDINGS
    return registry[_work(settings)].build.__module__.startswith("indelible.")
