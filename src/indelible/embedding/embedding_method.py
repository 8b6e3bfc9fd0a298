"""The verb ``embed``: from a model, the owner's data and a key to a protected model and its record.

A method is a frozen value that overrides :meth:`EmbeddingMethod.run`; :func:`embed` owns everything around it: checks,
copies, evaluation, checkpoints, time, record.
"""

import copy
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import nn

from indelible.base.checks import check_is_key, check_recipe, check_trainable
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.base.methods import Method, P, T, resolve, settings_in_value
from indelible.base.records import Record, hardware
from indelible.base.registry import MethodRegistry
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.embedding.mixing import StampedObjective, mix
from indelible.keys.key import FRESH, Key, WatermarkSamples
from indelible.nn.layers import check_finite
from indelible.nn.statistics import kept_frozen
from indelible.train import Objective, TrainSettings
from indelible.train.evaluate import accuracy, check_classifier, success_rate
from indelible.train.job import Job, inputs_of
from indelible.train.processes import from_first, joined
from indelible.train.settings import SCALES, Precision, Start
from indelible.verification import Verdict, verify
from indelible.verification.statistics.codebook_tests import smallest_p_value

EMBEDDINGS = MethodRegistry(
    "embedding method", group="indelible.embeddings", base="indelible.embedding:EmbeddingMethod"
)


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A protected model.

    Attributes:
        model: Of the class that came in, with the same ``state_dict`` keys.
        history: One row per epoch.
        record: What was run, with which settings, and its results.
        samples: The watermark samples that were embedded; keep them like the key. A key with keyed labels is verified
            with them. None for a codebook, which is stamped on the training images as they come.
        key: What to verify with: the key that was given, unless the method needs another one of the same secret (ROSE's
            has keyed labels, NTL's has no target class, CAE's holds the fingerprint).
        verdict: Whether the key proves ownership of this model now, before any attack: asked on test images, or on the
            owner's if none were given.
    """

    model: nn.Module = field(repr=False)
    history: Sequence[Mapping[str, Any]] = field(repr=False)
    record: Record
    samples: WatermarkSamples | None = field(default=None, repr=False)
    key: Key
    verdict: Verdict

    @property
    def advice(self) -> str | None:
        """What to do when the verdict is negative; None when it is positive."""
        return None if self.verdict.owned else advice(self.verdict)


def advice(verdict: Verdict) -> str:
    """Say what to do about a fresh model whose watermark is not shown."""
    if verdict.labels == "codebook":
        return (
            "Do not release this model: its watermark cannot be proven. Train longer (more epochs), or give the "
            "watermark more weight (a larger alpha with app, a larger fraction with other methods), and embed again."
        )
    return (
        "Do not release this model: its watermark cannot be proven. Use a codebook, the default key (leave out target "
        "and labels): with one target class a network learns any mark as readily as this one."
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingMethod(Method):
    """Base of embedding methods: settings as fields, the work in :meth:`run`.

    A value has the paper's defaults: one mark on fixed samples, 100 epochs. What the method's name has for your key
    and scale, :meth:`for_key` gives.
    """

    codebook_settings: ClassVar[Mapping[str, Any]] = {}
    """What a codebook changes in the defaults, which are for one mark on fixed samples."""
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named settings for a codebook, as changes to :meth:`for_codebook`: how much proof for which price."""
    changes_model: ClassVar[bool] = True
    """False for a fingerprint, which is read off a model."""

    @classmethod
    def for_codebook(cls, marks: int, start: Start = "scratch") -> Mapping[str, Any]:  # noqa: ARG003 - APP's depend on it
        """Return :attr:`codebook_settings` for so many marks, in a new network or in a trained one."""
        return cls.codebook_settings

    @classmethod
    def defaults(
        cls, scale: str, marks: int | None = None, recipe: str | None = None, start: Start = "scratch"
    ) -> dict[str, Any]:
        """Return what differs from the paper's settings at a scale, for a codebook of so many marks, with a recipe.

        In this order, the later wins: what the scale changes, what the codebook changes, what the recipe changes.
        """
        if recipe is not None and marks is None:
            raise InputError(
                f"recipe {recipe!r} is for codebooks, and this key has one class: it takes the paper's settings. Leave "
                "the recipe out, or make a codebook (a key without target and labels)."
            )
        return {
            **(cls.cpu_settings if SCALES[scale].name == "cpu" else {}),
            **({} if marks is None else cls.for_codebook(marks, start)),
            **({} if recipe is None else cls.recipes[recipe]),
        }

    @classmethod
    def for_key(
        cls: Callable[P, T], key: Key, scale: str = "cpu", recipe: str | None = None, start: Start = "scratch",
        *none: P.args, **settings: P.kwargs,
    ) -> T:  # fmt: skip
        """Build the method with the defaults that its name has in :func:`embed`; ``settings`` are what differs.

        A ``recipe`` says how much proof for which price, for a codebook: APP has ``"balanced"`` (its default),
        ``"light"`` (cheaper) and ``"strong"`` (a mark that survives more).
        """
        build: Any = cls  # typed as its constructor, so that editors and type checkers know its settings
        check_recipe(recipe, build, EMBEDDINGS)
        return cast("T", build.of({**build.defaults(scale, key.marks, recipe, start), **settings}, *none))

    def key_for(self, key: Key) -> Key:
        """Return the key that this method embeds, made of the one that the owner gave; by default that one."""
        return key

    def passes(self, train: TrainSettings, images: float) -> float | None:  # noqa: ARG002 - methods override it
        """Return the image passes of a training with so many images, to estimate its time; None when unknown."""
        return None

    def short_form(self, key: Key, images: int) -> Mapping[str, Any]:  # noqa: ARG002 - methods override it
        """Return what this method changes in the scale's training of a trained model, for a key and so many images."""
        return {}

    @abstractmethod
    def run(self, job: "Embedding") -> None:
        """Embed, by one or more calls of ``job.train``."""


@dataclass(kw_only=True)
class Embedding(Job):
    """A running embedding: what a method works with.

    Attributes:
        key: The key that is embedded; a method that makes a fingerprint puts it here.
        settings: How to train.
        start: ``"scratch"``, or ``"trained"`` when the model comes trained.
        test: Images for evaluation only, or None.
        samples: The watermark samples that were embedded.
    """

    key: Key
    settings: TrainSettings
    start: Start = "scratch"
    test: Data | None = None
    samples: WatermarkSamples | None = None

    def train(
        self, data: Data, objective: Objective, samples: WatermarkSamples | None, *,
        settings: TrainSettings | None = None, phase: str = "embedding", model: nn.Module | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        """Train the model on ``data``; ``samples`` are the watermark samples that this embeds.

        Another ``model`` than the protected one is measured by its BA only. Each phase has another name.
        """
        self.samples = samples
        self.fit(
            self.model if model is None else model, data, settings or self.settings, phase=phase, objective=objective,
            evaluate=self.evaluate if model is None else self.accuracy, seed=seed, key=self.key.digest,
        )  # fmt: skip

    def marked(
        self, objective: Objective, fraction: float, negatives: float
    ) -> tuple[Data, Objective, WatermarkSamples | None]:
        """Return data, objective and samples of a training on the owner's images with the key's marks among them.

        A codebook is stamped on the share ``fraction`` of the rows of every batch. Other keys have fixed samples that
        replace such a share of the images. ``negatives`` is the share with a foreign mark under their true label.
        """
        if self.key.labels != "codebook":
            mixed, samples = mix(self.data, self.key, fraction, negatives)
            return mixed, objective, samples
        if fraction or negatives:
            objective = StampedObjective(
                objective, self.key, fraction=fraction, negatives=negatives, normalize=self.settings.normalize,
                seed=self.seed,
            )  # fmt: skip
        return self.data, objective, None

    def accuracy(self, model: nn.Module) -> dict[str, float]:
        """Return BA on test images, if there are any."""
        return {} if self.test is None else {"ba": accuracy(model, self.test, normalize=self.settings.normalize)}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return BA and WSR on test images if there are any, and the WSR on the embedded samples.

        With keyed or stored labels the WSR is the share of the samples themselves that get their labels.
        """
        rates, normalize = self.accuracy(model), self.settings.normalize
        if self.test is not None or self.key.labels not in FRESH:
            asked = self.key.questions(self.data, self.test)
            rates["wsr"] = success_rate(model, asked, normalize=normalize)
        if self.samples is not None:
            rates["wsr_embedded"] = success_rate(model, self.samples, normalize=normalize)
        return rates


@settings_in_value(EMBEDDINGS, "app")
def embed(
    model: nn.Module,
    data: Any,
    key: Key,
    method: str | EmbeddingMethod = "app",
    *,
    scale: str = "cpu",
    start: Start = "scratch",
    train: TrainSettings | Mapping[str, Any] | None = None,
    seed: int = 0,
    normalize: Normalization | None = None,
    test: Any = None,
    folder: str | Path | None = None,
    device: str = "auto",
) -> Embedded:
    """Train a copy of ``model`` so that it carries the watermark of ``key``.

    Args:
        model: Any classifier of the key's classes.
        data: The owner's images: data set, pair (images, labels), folder, ``.npz``.
        key: The owner's key.
        method: A registered name (``indelible embed --list``), ``"package.module:Class"``, or a method value. A value
            is how settings are given: ``AdversarialPerturbation.for_key(key, eps=0.01)`` has the defaults of the name
            ``"app"`` for all else, ``AdversarialPerturbation(eps=0.01)`` the paper's.
        scale: ``"cpu"`` (a short training) or ``"paper"`` (100 epochs, a GPU job).
        start: ``"trained"`` protects a model that is trained already: the scale's short form, at a low rate. APP with a
            codebook takes 600 steps, in which the model keeps its own answers.
        train: Training settings, or a mapping of changes to the scale's.
        seed: The same seed and settings give the same bits on the same machine.
        normalize: (mean, std) that the model expects its input to be normalised by.
        test: Images for evaluation only; BA and WSR on them go into history and record.
        folder: Keep checkpoints and history there; an interrupted run there is continued.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.

    Returns:
        The protected model with its history and record; ``model`` itself is unchanged.
    """
    check_trainable(model)
    check_is_key(key, Key)
    name, value = resolve(EMBEDDINGS, method, lambda build: build.for_key(key, scale, start=start))
    how = _training(train, scale, start, normalize)
    with joined(device=device) as group:
        if group.world > 1 and (why := value.why_one_process()):
            raise InputError(f"the method {name!r} runs in one process: {why}. Start it without torchrun.")
        how = how.but(precision=precision_for(model, how.precision))
        owner = as_data(data, classes=key.classes)
        if start == "trained" and not isinstance(train, TrainSettings):
            how = how.but(**{**value.short_form(key, len(owner)), **(train or {})})
        job = Embedding(
            model=copy.deepcopy(model), data=owner, key=value.key_for(key), settings=how, seed=seed, start=start,
            test=None if test is None else as_data(test, classes=key.classes), method=value.to_json(),
            folder=None if folder is None else Path(folder), device=device,
        )  # fmt: skip
        job.key.check_fits(owner)
        check_finite(model)
        check_classifier(model, owner, normalize=normalize)
        compared = start == "trained" and value.changes_model
        before = {f"{rate}_before": found for rate, found in job.evaluate(model).items()} if compared else {}
        began = time.monotonic()
        with kept_frozen(job.model):
            value.run(job)
        seconds, passed = job.cost(time.monotonic() - began)
        for original, layer in zip(model.modules(), job.model.modules(), strict=True):
            layer.training = original.training
        rates = from_first(lambda: job.evaluate(job.model))
        # As JSON: processes exchange nothing that would have to be unpickled.
        said = from_first(lambda: _verdict(job.model, job.key, owner, job.test, job.samples, normalize).to_json())
    key = job.key
    record = Record(
        verb="embed", method=name, seed=seed,
        settings={"method": job.method, "train": how.to_json(), "start": start, "device": device, **group.to_json()},
        inputs={
            **inputs_of(owner, model), "key": key.digest, "kind": key.kind, "scheme": key.scheme, "target": key.target,
            "labels": key.labels, "samples": None if job.samples is None else len(job.samples),
        },
        metrics={**rates, **before, **job.figures, "model_digest": tensor_digest(job.model.state_dict())},
        seconds=seconds, images=passed, hardware=hardware(next(job.model.parameters()).device),
    )  # fmt: skip
    return Embedded(
        model=job.model, history=job.history(), record=record, samples=job.samples, key=key,
        verdict=Verdict.from_json(said),
    )  # fmt: skip


def _training(
    train: TrainSettings | Mapping[str, Any] | None, scale: str, start: Start, normalize: Normalization | None
) -> TrainSettings:  # fmt: skip
    """Return the training settings with the input normalisation, which is an argument of :func:`embed`."""
    given = train.normalize if isinstance(train, TrainSettings) else (train or {}).get("normalize")
    # Training settings that are read from a record hold the value that was given beside them.
    if given is not None and given != normalize:
        raise InputError(
            "normalize is an argument of its own, not a training setting: embed(..., normalize=(mean, std))."
        )
    settings = train if isinstance(train, TrainSettings) else SCALES[scale].start(start).but(**(train or {}))
    return settings.but(normalize=normalize)


def _verdict(
    model: nn.Module, key: Key, owner: Data, test: Data | None, samples: WatermarkSamples | None,
    normalize: Normalization | None,
) -> Verdict:  # fmt: skip
    """Verify a finished model with its own key, at the smallest level that so few marks can reach if need be."""
    # A refusal now would lose the training; the verdict says its alpha.
    least = 0.0 if key.marks is None else smallest_p_value(key.classes, key.marks)
    return verify(
        model, key, owner if test is None else test, embedded=samples if key.labels == "keyed" else None,
        accuracy=test is not None, normalize=normalize, alpha=max(1e-6, least),
    )  # fmt: skip


def precision_for(model: nn.Module, precision: Precision) -> Precision:
    """Return the precision to train ``model`` with, or refuse a model whose parameters cannot be trained as they are.

    float64 parameters are trained in float64. Half-precision parameters are refused: an update of a thousandth of a
    weight, and a watermark's are smaller, is lost in their eight to eleven bits.
    """
    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    if len(kinds) > 1:
        names = ", ".join(sorted(str(kind) for kind in kinds))
        raise InputError(f"the model's parameters are of several types ({names}). Convert it first: model.float().")
    if kinds & {torch.float16, torch.bfloat16}:
        raise InputError(
            f"the model's parameters are {next(iter(kinds))}: small updates would be lost in rounding. Embed "
            "model.float(), with train={'precision': 'bf16-mixed'} if the device has it, and convert the result back."
        )
    return "64-true" if kinds == {torch.float64} and precision == "auto" else precision
