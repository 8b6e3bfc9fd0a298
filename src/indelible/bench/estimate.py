"""How long cells will take: image passes that their settings ask for, divided by measured passes a second.

The speed of a cell is, in this order: the median of finished cells in the store with the same network and the same
method or attack; of any finished cells with the same network; a short measurement of a plain step, here and now.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from indelible.attacks import ATTACKS
from indelible.base.errors import InputError
from indelible.bench.cells import Cell
from indelible.bench.speed.steps import plain_rate
from indelible.data.catalog import load
from indelible.data.images import Shape
from indelible.data.options import split_options
from indelible.data.sources import SOURCES
from indelible.embed.app import AdversarialPerturbation

__all__ = ["Estimate", "Size", "estimate", "evaluation_passes", "size_of", "training_passes"]

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
        seconds: By digest of the cell; without cells whose data is not here and whose size nobody knows.
        basis: Where the speed comes from, in words, by network.
    """

    seconds: Mapping[str, float]
    basis: Mapping[str, str]

    def hours(self, workers: int) -> float:
        """Return the hours of all cells on so many workers."""
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


def estimate(cells: Sequence[Cell], models: Mapping[str, Cell], records: Iterable[Mapping[str, Any]]) -> Estimate:
    """Estimate the time of cells on one worker.

    Args:
        cells: What is to be done.
        models: All model cells of the plan, by digest.
        records: Records of finished cells.
    """
    speeds, basis, seconds = _measured(records), dict[str, str](), dict[str, float]()
    for cell in cells:
        try:
            size = size_of(cell.dataset)
        except InputError:
            basis.setdefault(cell.architecture, f"not known, for {cell.dataset} is not here")
            continue
        rate, said = _speed(cell, size, speeds)
        basis.setdefault(cell.architecture, said)
        passes = training_passes(cell, size, models[cell.needs or cell.digest])
        seconds[cell.digest] = (passes + evaluation_passes(cell, size) / _FORWARD_ONLY) / rate
    return Estimate(seconds=seconds, basis=basis)


def _measured(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if record["images_per_second"]:
            for work in (_work(record["settings"]), ""):
                found.setdefault((record["architecture"], work), []).append(record["images_per_second"])
    return found


def _work(settings: Mapping[str, Any]) -> str:
    return str(settings.get("attack") or settings["method"])


def _speed(cell: Cell, size: Size, speeds: dict[tuple[str, str], list[float]]) -> tuple[float, str]:
    for work in (_work(cell.settings), ""):
        known = speeds.get((cell.architecture, work))
        if known:
            return statistics.median(known), "finished cells"
    rate = plain_rate(cell.architecture, shape=size.shape, batch_size=_BATCH)
    speeds[cell.architecture, ""] = [rate]
    return rate, f"a step measured now: {rate:.0f} images/s with {torch.get_num_threads()} thread(s)"
