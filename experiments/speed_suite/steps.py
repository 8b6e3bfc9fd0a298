"""A training step by method: seconds, peak memory, and the data pipeline alone.

| case | what a step is |
|---|---|
| ``plain`` | ordinary batch, cross-entropy, SGD; what every ratio is taken against |
| ``data pipeline`` | reading, augmenting and converting the ordinary batch, nothing else |
| ``Vanilla`` | a plain step on the mixed set |
| ``EW`` | a plain step on the mixed set under exponential weighting: the embedding phase |
| ``CW`` | a plain step and the noisy passes that fall on it, on average over an epoch of 40,000 images |
| ``c-BN only`` | APP with eps 0: one watermark pass |
| ``APP exact`` | both watermark passes, 64 + 64 rows |
| ``APP balanced`` | the defaults for a codebook of 16 marks, on average over the steps between two watermark passes |
| ``APP light`` | those of the recipe ``light``, likewise |

CW makes 2,001 noisy passes an epoch, all in 21 of its steps: timed is a step with one such pass, and what it takes
beyond the plain step is multiplied by the passes a step. Likewise, of APP whose passes begin late steps with passes are
timed, and what they take beyond the plain step is multiplied by the share of the training that has them. All cases have
the paper's settings, whatever the network.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count

import torch
from torch import Tensor, nn

from indelible.data.augment import Augmentation
from indelible.data.batches import Batches
from indelible.data.images import Data, ImageData, Shape
from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.cw import CertifiedTraining, NoisyPasses
from indelible.embedding.ew import ExponentialWeights
from indelible.embedding.mixing import MarkedBatches, mix
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import Key, WatermarkSamples
from indelible.models import build_model
from indelible.nn.exponential import weighting
from indelible.train.objective import CrossEntropy, Step
from speed_suite.clock import peak_bytes, seconds_of

__all__ = ["APP_CASES", "CASES", "Scene", "memory_round", "steps_round"]

_CPU = torch.device("cpu")
_CLASSES = 10
_EPOCH_IMAGES = 40_000
_LEAST_SECONDS, _MOST_REPEATS = 0.25, 20
PLAIN, PIPELINE = "plain", "data pipeline"
CASES = {
    "app": (PLAIN, PIPELINE, "APP exact", "APP balanced", "APP light"),
    "methods": (PLAIN, "Vanilla", "EW", "CW", "c-BN only"),
}
"""By part: a large network takes minutes a round, and half a round is lost sooner."""
APP_CASES = {
    "c-BN only": AdversarialPerturbation(eps=0.0),
    "APP exact": AdversarialPerturbation(),
    **{
        f"APP {recipe}": AdversarialPerturbation.of(
            {**AdversarialPerturbation.for_codebook(16), **AdversarialPerturbation.recipes[recipe], "head_start": 0}
        )
        for recipe in ("balanced", "light")
    },
}
Work = Callable[[], object]
Round = Callable[[Container[str]], Iterator[tuple[str, float]]]
"""Measures one round, case by case, but for the cases that are known."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What all cases of a measurement share: random images, a key, a network's name.

    Attributes:
        network: Name of the network.
        shape: (C, H, W) of the images.
        batch_size: Images in a plain step.
        device: Where to compute.
    """

    network: str
    shape: Shape = (3, 32, 32)
    batch_size: int = 128
    device: torch.device = _CPU

    @cached_property
    def data(self) -> ImageData:
        """Random images, eight batches of them."""
        random = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (8 * self.batch_size, *self.shape), generator=random, dtype=torch.uint8)
        labels = torch.randint(0, _CLASSES, (len(images),), generator=random)
        return ImageData(images, labels, tuple(map(str, range(_CLASSES))), "random").to(self.device)

    @cached_property
    def mixed(self) -> tuple[Data, WatermarkSamples]:
        """The same with watermark samples among them."""
        key = Key.create(kind="noise", classes=_CLASSES, shape=self.shape, target=0, secret=bytes(32))
        return mix(self.data, key, fraction=0.1)

    def model(self) -> nn.Module:
        """Return the network, ready to train."""
        model = build_model(self.network, classes=_CLASSES, shape=self.shape, seed=0).train()
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def batches(self, data: Data, augmentation: Augmentation = "crop-flip") -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches for ever, in the layout that the training loop gives a model."""
        whole = Batches(data=data, batch_size=self.batch_size, seed=0, augmentation=augmentation, device=self.device)
        for epoch in count():
            for images, labels in whole.epoch(epoch):
                yield images.contiguous(memory_format=torch.channels_last), labels

    def work(self, case: str) -> tuple[Work, int]:
        """Return one unit of work of a case, and how many steps it is."""
        mixed, samples = self.mixed
        source = self.batches(self.data if case in {PLAIN, PIPELINE} else mixed)
        if case == PIPELINE:
            return lambda: next(source), 1
        model = self.model()
        if case == "EW":
            scope = ExitStack()  # never left: the model is thrown away with it
            scope.enter_context(weighting(model, ExponentialWeights().temperature, leave="plain"))
            return _repeated(model, source, partial(_nothing, scope))
        if case in APP_CASES:
            passes = WatermarkPasses(model, APP_CASES[case], MarkedBatches(samples, APP_CASES[case].rows))
            return _repeated(model, source, passes.backward, APP_CASES[case].every)
        if case == "CW":
            few = CertifiedTraining(levels=2, draws=1, start_epoch=0)
            noisy = NoisyPasses(few, MarkedBatches(samples, few.rows), steps=2)
            # Of an epoch of two steps the second has the level with noise.
            return _repeated(model, source, lambda images, _: noisy.backward(model, images, 1))
        return _repeated(model, source, partial(_nothing, None))


def _nothing(_scope: ExitStack | None, _images: Tensor, _number: int) -> None:
    """Add nothing to the ordinary gradient."""


def _repeated(
    model: nn.Module, source: Iterator[tuple[Tensor, Tensor]], more: Callable[[Tensor, int], object], steps: int = 1
) -> tuple[Work, int]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    for weight in model.parameters():
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)  # as in the middle of a training
    ordinary, numbers = CrossEntropy(), count()

    def work() -> None:
        for _ in range(steps):
            images, labels = next(source)
            optimizer.zero_grad()
            number = next(numbers)
            ordinary.backward(Step(model, images, labels, number, 0, _backward))
            more(images, number)
            optimizer.step()

    return work, steps


def _backward(loss: Tensor) -> None:
    loss.backward()


def noisy_passes_a_step(batch_size: int, method: CertifiedTraining | None = None) -> float:
    """Return how many noisy passes of CW fall on a step, on average over an epoch of 40,000 images."""
    cw = method or CertifiedTraining()
    passes = cw.batches * sum(cw.draws_at(level) for level in range(cw.levels))
    return passes / -(-_EPOCH_IMAGES // batch_size)


def passes_a_step(case: str, batch_size: int) -> float:
    """Return how often what is timed beyond a plain step falls on a step, on average over the training."""
    if case == "CW":
        return noisy_passes_a_step(batch_size)
    return 1.0 - APP_CASES[case].after if case in APP_CASES else 1.0


def steps_round(scene: Scene, cases: Sequence[str]) -> Round:
    """Return what times a step of every case, in turn: seconds by case."""
    works = {case: scene.work(case) for case in cases}
    plain, _ = works[PLAIN]
    plain()
    # A step of a small network is too short for one reading of the clock. A large one's first step of every case is not
    # thrown away: memory is allocated already, and choosing kernels takes no time beside it.
    repeats = max(1, min(_MOST_REPEATS, round(_LEAST_SECONDS / seconds_of(plain, scene.device))))
    for work, _ in works.values() if repeats > 1 else ():
        work()

    def several(work: Work) -> None:
        for _ in range(repeats):
            work()

    def measure(_known: Container[str] = ()) -> Iterator[tuple[str, float]]:
        of_plain = 0.0
        for case, (work, steps) in works.items():
            found = seconds_of(partial(several, work), scene.device) / steps / repeats
            of_plain = found if case == PLAIN else of_plain
            yield case, of_plain + passes_a_step(case, scene.batch_size) * (found - of_plain)

    return measure


def memory_round(scene: Scene) -> Round:
    """Return what gives the peak memory of a step of every case: MiB, with weights, buffers, momentum and gradients.

    The images of the data set are not counted.
    """

    def measure(known: Container[str] = ()) -> Iterator[tuple[str, float]]:
        for case in dict.fromkeys(case for cases in CASES.values() for case in cases if case != PIPELINE):
            if case not in known:
                work, _ = scene.work(case)
                yield case, (peak_bytes(work, scene.device) + _kept(scene)) / 2**20

    return measure


def _kept(scene: Scene) -> int:
    """Return the bytes of weights, buffers and momentum, which are there before a step begins."""
    model = scene.model()
    tensors = [*model.state_dict().values(), *model.parameters()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
