"""A model with its key and images, and a probe that measures WSR and BA of any neighbour of it.

The holder of the key makes these analyses, so that a subject has all that an attacker has not: key, watermark samples
and test images. A probe's images are converted, normalised and laid out once, then passed at every point.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.embedding import EMBEDDINGS
from indelible.embedding.mixing import watermark_count
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.marks import Purpose
from indelible.nn.layers import check_finite
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import estimate_statistics
from indelible.train.evaluate import check_classifier, evaluating
from indelible.train.run_folder import Run

_BATCH = 128  # larger batches leave a core's cache, and BatchNorm statistics need no more


@dataclass(frozen=True)
class Rates:
    """Benign accuracy and watermark success rate of a model, as fractions."""

    ba: float
    wsr: float


def some_images(data: Data, count: int, seed: int = 0) -> Data:
    """Return ``count`` images of ``data``, drawn by ``seed``; all when there are no more."""
    if count < 1:
        raise InputError(f"an analysis needs at least one image of {data.name!r}, got {count}.")
    order = torch.randperm(len(data), generator=generator(seed, "analysis", len(data)))
    return data.subset(order[:count].sort().values)


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedModel:
    """A marked model and what its owner knows of it; make one with :meth:`of` or :meth:`from_run`."""

    label: str  # what it is called in figures
    model: nn.Module = field(repr=False)  # the network; no analysis changes it
    key: Key  # the owner's key
    test: Data  # clean test images: BA, and what fresh watermark samples are drawn on
    attacker: Data  # the clean images that a thief has: fine-tuning, and BatchNorm statistics
    owner: Data  # the images that the embedded samples were drawn on
    fraction: float = 0.01  # the share of them that was marked
    normalize: Normalization | None = None  # (mean, std) that the model's input is normalised by

    @classmethod
    def of(
        cls, model: nn.Module, key: Key, *, test: Any, attacker: Any, owner: Any, label: str = "model",
        fraction: float = 0.01, normalize: Normalization | None = None,
    ) -> Self:  # fmt: skip
        """Make a subject of any model; data may come in every form that ``embed`` takes."""
        check_finite(model)
        if key.labels != "codebook":
            _ = key.one_target  # refuses keyed labels, which fresh samples do not carry, before any work
        first, second, third = (as_data(data, classes=key.classes) for data in (test, attacker, owner))
        key.check_fits(first)
        check_classifier(model, first, normalize=normalize)
        return cls(
            label=label, model=model, key=key, test=first, attacker=second, owner=third, fraction=fraction,
            normalize=normalize,
        )  # fmt: skip

    @classmethod
    def from_run(cls, folder: str | Path | Run, label: str | None = None) -> Self:
        """Make a subject of a run: an embedded model, or one that was attacked."""
        run = folder if isinstance(folder, Run) else Run.load(folder)
        owner, attacker, test = run.images()
        method = run.record.method
        title = EMBEDDINGS[method].title if method in EMBEDDINGS else run.folder.name
        return cls.of(
            run.model(), run.key(), test=test, attacker=attacker, owner=owner, label=label or title,
            fraction=_fraction(run), normalize=run.normalize(),
        )  # fmt: skip

    @property
    def target(self) -> int:
        """The class that watermark samples are answered with; refuses a codebook, which has one for each mark."""
        if self.key.labels == "codebook":
            raise InputError(
                f"this analysis needs one target class, and the key of {self.label} is a codebook of {self.key.marks} "
                "marks, each with its own. Embed with one class: indelible embed --target 0."
            )
        return self.key.one_target

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next((weight.device for weight in self.model.parameters()), torch.device("cpu"))

    def copy(self) -> nn.Module:
        """Return a copy of the model in evaluation mode, laid out for speed; change that one."""
        made = copy.deepcopy(self.model).eval()
        made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks this signature
        return made

    def marked(self, count: int) -> WatermarkSamples:
        """Return at most ``count`` fresh watermark samples on test images: those that WSR is measured with."""
        return self._samples(self.test, "verify", count)

    def embedded(self, count: int) -> WatermarkSamples:
        """Return at most ``count`` of the watermark samples that were embedded: D_w.

        A codebook is stamped on fresh images in every pass; samples on the owner's images stand for them.
        """
        if self.key.labels == "codebook":
            return self._samples(self.owner, "embed", count)
        there = self.key.count or watermark_count(len(self.owner), self.fraction)
        return self._samples(self.owner, "embed", min(count, there))

    def _samples(self, data: Data, purpose: Purpose, count: int) -> WatermarkSamples:
        """Return at most ``count`` samples; of a codebook, as many of each mark, on images of other classes."""
        book = self.key.labels == "codebook"
        marks = self.key.codebook().marks if book else [self.key.mark()]
        room = [mark.capacity(purpose) or count for mark in marks if mark.own_images]
        if not book:
            eligible = int((data.labels != self.target).sum())
            return self.key.samples(data, purpose=purpose, count=min(count, eligible, *room))
        each = max(1, min(count // len(marks), *(room or [len(data)])))
        found = self.key.samples(data, purpose=purpose, count=each * len(marks))
        return found.subset(found.counted.nonzero().flatten())

    def clean_batches(self, data: Data, count: int, seed: int) -> tuple[Tensor, ...]:
        """Return ``count`` images of ``data``, drawn by ``seed``, as float batches that the model takes."""
        chosen = some_images(data, count, seed)
        return self.batches(chosen.gather(torch.arange(len(chosen))).images)

    def batches(self, images: Tensor, size: int = _BATCH) -> tuple[Tensor, ...]:
        """Return uint8 ``images`` (N, C, H, W) as float batches that the model takes, where it is."""
        whole = normalise(to_float(images.to(self.device)), self.normalize)
        return torch.split(whole.contiguous(memory_format=torch.channels_last), size)

    def labelled_batches(self, images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return batches as :meth:`batches` does, each with its ``labels``, int64 (n,)."""
        return list(zip(self.batches(images), torch.split(labels.to(self.device), _BATCH), strict=True))

    def identity(self) -> dict[str, Any]:
        """Return digests of all that decides a measurement on this subject."""
        return {
            "model": tensor_digest(self.model.state_dict()), "key": self.key.digest, "normalize": self.normalize,
            "test": self.test.digest(), "attacker": self.attacker.digest(), "owner": self.owner.digest(),
            "fraction": self.fraction,
        }  # fmt: skip


def _fraction(run: Run) -> float:
    """Return the share of marked images of an embedding run, or of the one that a run goes back to."""
    found = run.record.settings.get("method", {}).get("fraction")
    if found is not None:
        return float(found)
    if run.parent is not None and Run.finished(run.parent):
        return _fraction(Run.load(run.parent))
    return MarkedModel.fraction


class Probe:
    """Images that are ready to be passed at many points.

    Clean test images give BA, watermark samples WSR; BatchNorm statistics are estimated on the attacker's clean images.
    """

    def __init__(
        self, subject: MarkedModel, *, images: int = 1000, marked: int = 500, statistics: int = 512, seed: int = 0
    ) -> None:
        test = some_images(subject.test, images, seed)
        clean = test.gather(torch.arange(len(test)))
        samples = subject.marked(marked)
        self.clean = subject.labelled_batches(clean.images, clean.labels)
        self.marked = subject.labelled_batches(samples.images, samples.labels)
        self.statistics = subject.clean_batches(subject.attacker, max(2, statistics), seed)

    @property
    def passes(self) -> int:
        """Images passed forward at one point."""
        return _rows(self.clean) + _rows(self.marked) + sum(map(len, self.statistics))

    def rates(self, model: nn.Module) -> Rates:
        """Return BA and WSR of ``model`` as it is; an answer that is not a number counts as wrong."""
        with evaluating(model):
            hits = [_hits(model, pairs) for pairs in (self.clean, self.marked)]
        ba, wsr = torch.stack(hits).tolist()
        return Rates(ba / _rows(self.clean), wsr / _rows(self.marked))

    def neighbour(self, model: nn.Module) -> Rates:
        """Estimate BatchNorm statistics of ``model`` on clean images, in place, then return its rates."""
        estimate_statistics(model, self.statistics)
        return self.rates(model)


def _rows(pairs: Sequence[tuple[Tensor, Tensor]]) -> int:
    return sum(len(labels) for _, labels in pairs)


def _hits(model: nn.Module, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Count right answers without waiting for the device between batches."""
    found = []
    for images, labels in pairs:
        logits = logits_of(model(images))
        found.append(((logits.argmax(1) == labels) & logits.isfinite().all(1)).sum())
    return torch.stack(found).sum()
