"""How long cells will take: image passes that their settings need, divided by measured passes per second.

The speed of a cell is, in this order: the median of finished cells in the store with the same network and the same
method or attack; of any finished cells with the same network; a short measurement of a plain step, here and now, on
the device that a worker would take. An estimate holds for the machine whose speed it uses, which it names. Unknown are
cells whose data is not here and of no known size, and cells of a method or attack that does not say its passes, until
one of the same network and data is finished.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.base.records import hardware
from indelible.bench.cells import BenchCell
from indelible.data.catalog import load, split_options
from indelible.data.images import Shape
from indelible.data.sources import SOURCES
from indelible.models import build_model
from indelible.nn.outputs import logits_of
from indelible.train.devices import pinned_threads
from indelible.train.run_folder import Json
from indelible.train.settings import TrainSettings
from indelible.verification.suspect_queries import DECOY_SAMPLES, DECOYS

_BATCH, _CLASSES = 16, 10
_FORWARD_ONLY = 3.0  # a pass without gradients costs about a third of one with


@dataclass(frozen=True)
class DataSize:
    """Size of a data set, which decides the work: numbers of images and classes, and the shape (C, H, W)."""

    train: int
    test: int
    classes: int
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long some cells take on one worker: ``seconds`` by digest, or why that is ``unknown``.

    ``basis`` says by network where the speed comes from, ``machines`` what a worker ran on when it was measured.
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
def size_of(name: str) -> DataSize:
    """Return the size of a data set; of a named one also when it has not been fetched."""
    try:
        train, test = load(name)
        return DataSize(len(train), len(test), len(train.classes), train.shape)
    except InputError:
        bare, options = split_options(name)
        if bare not in SOURCES:
            raise
        known = SOURCES[bare]
        return DataSize(
            options.get("train", known.train), options.get("test", known.test), len(known.classes), known.shape
        )


def training_passes(cell: BenchCell, size: DataSize, model: BenchCell) -> float | None:
    """Return the images that a cell passes forward and backward, as its method or attack says; None when unknown.

    ``model`` is the model cell that it attacks; for a model cell, the cell itself.
    """
    attacked = size.train * model.settings["attacker"]
    given: tuple[Any, float] = attacked, size.classes
    if cell.verb == "embed":
        given = TrainSettings.from_json(cell.settings["train"]), size.train - attacked
    passes: float | None = cell.built().passes(*given)
    return passes


def evaluation_passes(cell: BenchCell, size: DataSize) -> float:
    """Return the images that are passed forward only: the verdict, looks in between, the models of a curve."""
    verdict = 2 * size.test + DECOYS * min(DECOY_SAMPLES, size.test)
    if cell.verb == "embed":
        train = cell.settings["train"]
        looks: int = 1 + -(-train["epochs"] // train["evaluate_every"])
        return verdict + 2 * size.test * looks
    measured = min(size.test, cell.settings["curve_images"] or size.test)
    return float(verdict + cell.built().curve_models() * 2 * measured)


def estimate(
    cells: Sequence[BenchCell], models: Mapping[str, BenchCell], records: Iterable[Json], *, threads: int | None = None
) -> Estimate:  # fmt: skip
    """Estimate the time of cells on one worker with ``threads`` threads, from the records of finished cells.

    ``models`` are all model cells of the plan, by digest.
    """
    known = _Speeds(records, threads)
    seconds, unknown = dict[str, float](), dict[str, str]()
    for cell in cells:
        work = _work(cell.settings)
        try:
            size = size_of(cell.dataset)
        except InputError:
            unknown[cell.digest] = f"the data set {cell.dataset} is not here, and its size is not known"
            continue
        passes = training_passes(cell, size, models[cell.needs or cell.digest])
        if passes is not None:
            rate = known.rate(cell.architecture, work, size.shape)
            seconds[cell.digest] = (passes + evaluation_passes(cell, size) / _FORWARD_ONLY) / rate
        elif taken := known.seconds.get((cell.architecture, cell.dataset, work)):
            seconds[cell.digest] = statistics.median(taken)
        else:
            unknown[cell.digest] = f"what {work} costs is not known before a first cell is finished"
    return Estimate(seconds=seconds, unknown=unknown, basis=known.basis, machines=sorted(known.machines))


class _Speeds:
    """Speeds and times that were measured, where they come from, and the machines that they are of."""

    def __init__(self, records: Iterable[Json], threads: int | None) -> None:
        self.threads, self.basis, self.machines = threads, dict[str, str](), set[str]()
        self.seconds = defaultdict[tuple[str, str, str], list[float]](list)
        self._rates = defaultdict[tuple[str, str], list[float]](list)
        for record in records:
            network, work, rate = record["architecture"], _work(record["settings"]), record["images_per_second"]
            self.seconds[network, record.get("dataset", ""), work].append(record["seconds"])
            if rate:
                self._rates[network, work].append(rate)
                self._rates[network, ""].append(rate)
                self.machines.add(_machine(record.get("hardware", {})))

    def rate(self, network: str, work: str, shape: Shape) -> float:
        """Return image passes per second."""
        found = self._rates.get((network, work)) or self._rates.get((network, ""))
        if found is None:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            with pinned_threads(self.threads):
                found = [plain_rate(network, shape=shape, device=device)]
                here = _machine(hardware(device))
            self._rates[network, ""] = found
            self.basis[network] = f"a step measured now: {found[0]:.0f} images/s on {here}"
            self.machines.add(here)
        self.basis.setdefault(network, "finished cells")
        return statistics.median(found)


def plain_rate(
    network: str, *, shape: Shape = (3, 32, 32), batch_size: int = _BATCH, device: torch.device | None = None
) -> float:  # fmt: skip
    """Return images per second of plain training, from one step after one to warm up (wall time)."""
    place = device or torch.device("cpu")
    images = torch.rand(batch_size, *shape, device=place).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch_size, device=place) % _CLASSES
    model = build_model(network, classes=_CLASSES, shape=shape, seed=0).train()
    model = model.to(place, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    began = 0.0
    for _ in range(2):
        began = _now(place)
        optimizer.zero_grad()
        F.cross_entropy(logits_of(model(images)), labels).backward()
        optimizer.step()
    return batch_size / (_now(place) - began)


def _now(device: torch.device) -> float:
    if device.type == "cuda":  # kernels are only queued when a call returns
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _machine(hardware: Json) -> str:
    """Write what a worker ran on: its accelerator, or so many threads of a processor."""
    if "accelerator" in hardware:
        return str(hardware["accelerator"])
    threads = hardware.get("threads", "some")
    return f"{threads} thread{'' if threads == 1 else 's'} of {hardware.get('processor') or 'an unknown processor'}"


def _work(settings: Json) -> str:
    return str(settings.get("attack") or settings["method"])
