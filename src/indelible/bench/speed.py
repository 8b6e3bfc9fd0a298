"""Speed: seconds a step of plain training, of each embedding method and of the data pipeline, side by side in one run.

Machines are noisy: what counts are ratios within one run. Each round times every case once, in turn, and a ratio is
taken against the plain step of the same round; the table shows the median ratio and its spread over the rounds.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from indelible.base.progress import Progress
from indelible.base.records import hardware, versions
from indelible.data.augment import augment, to_float
from indelible.data.batches import Batches
from indelible.data.images import ImageData, Shape
from indelible.embed.app import AdversarialPerturbation, WatermarkPasses
from indelible.keys.key import Key
from indelible.models import build_model
from indelible.train.objective import CrossEntropy, Step

__all__ = ["Speed", "measure_speed"]

_CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The outcome of one measurement.

    Attributes:
        model: The network.
        shape: (C, H, W) of the images.
        batch_size: Images in a plain step.
        threads: CPU threads.
        seconds: Median seconds a step, by case.
        ratio: Median ratio to the plain step of the same round, by case.
        spread: Lowest and highest of those ratios, by case.
        rounds: How many rounds.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    model: str
    shape: Shape
    batch_size: int
    threads: int
    seconds: Mapping[str, float]
    ratio: Mapping[str, float]
    spread: Mapping[str, tuple[float, float]]
    rounds: int
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]


def measure_speed(
    model: str = "resnet-w16", *, shape: Shape = (3, 32, 32), batch_size: int = 128, rounds: int = 5, steps: int = 3
) -> Speed:
    """Time all cases on random images; ``steps`` steps of each in every round, after one round to warm up."""
    cases = _cases(model, shape, batch_size)
    times: dict[str, list[float]] = {name: [] for name in cases}
    with Progress(f"speed of {model}", (rounds + 1) * len(cases)) as bar:
        for turn in range(rounds + 1):
            for name, step in cases.items():
                began = time.perf_counter()
                for number in range(steps):
                    step(turn * steps + number)
                if turn:
                    times[name].append((time.perf_counter() - began) / steps)
                bar.advance()
    ratios = {
        name: [one / plain for one, plain in zip(found, times["plain"], strict=True)] for name, found in times.items()
    }
    return Speed(
        model=model, shape=shape, batch_size=batch_size, threads=torch.get_num_threads(),
        seconds={name: statistics.median(found) for name, found in times.items()},
        ratio={name: statistics.median(found) for name, found in ratios.items()},
        spread={name: (min(found), max(found)) for name, found in ratios.items()},
        rounds=rounds, versions=versions(), hardware=hardware(),
    )  # fmt: skip


def _cases(name: str, shape: Shape, batch_size: int) -> dict[str, Callable[[int], None]]:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8 * batch_size, *shape), generator=random, dtype=torch.uint8)
    labels = torch.randint(0, _CLASSES, (len(images),), generator=random)
    data = ImageData(images, labels, tuple(map(str, range(_CLASSES))), "random")
    key = Key.create(kind="noise", classes=_CLASSES, shape=shape, target=0, secret=bytes(32))
    samples = key.samples(data, purpose="embed", count=batch_size)
    batches = Batches(data=data, batch_size=batch_size, seed=0)

    def pipeline(number: int) -> None:
        rows = batches.order(number)[:batch_size]
        to_float(augment(images[rows], "crop-flip", random)).contiguous(memory_format=torch.channels_last)

    def stepper(method: AdversarialPerturbation | None) -> Callable[[int], None]:
        return _stepper(build_model(name, classes=_CLASSES, shape=shape, seed=0), method, samples, batches)

    return {
        "plain": stepper(None),
        "c-BN only (eps 0)": stepper(AdversarialPerturbation(eps=0.0)),
        "APP": stepper(AdversarialPerturbation()),
        "data pipeline": pipeline,
    }


def _stepper(
    model: nn.Module, method: AdversarialPerturbation | None, samples: Any, batches: Batches
) -> Callable[[int], None]:
    model.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    passes = None if method is None else WatermarkPasses(model, method, samples)
    ordinary = CrossEntropy()
    source = _endless(batches)

    def backward(loss: Tensor) -> None:
        loss.backward()

    def step(number: int) -> None:
        images, labels = next(source)
        images = images.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        ordinary.backward(Step(model, images, labels, number, 0, backward))
        if passes is not None:
            passes.backward(images, number)
        optimizer.step()

    return step


def _endless(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    epoch = 0
    while True:
        yield from batches.epoch(epoch)
        epoch += 1
