"""The verb ``embed``: from a model, the owner's data and a key to a protected model and its record.

A method is a frozen value that overrides :meth:`EmbeddingMethod.run`; :func:`embed` owns everything around it: checks,
copies, evaluation, checkpoints, time, record.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from indelible.base.checks import check_is_key, check_recipe, check_trainable
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.base.methods import Method, resolve
from indelible.base.plugins import MethodRegistry
from indelible.base.records import Record, hardware
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.embed.mixing import mix
from indelible.embed.stamping import StampedObjective
from indelible.keys.key import FRESH, Key, WatermarkSamples
from indelible.nn.layers import check_finite
from indelible.nn.statistics import kept_frozen
from indelible.train import Fitted, Objective, TrainSettings, fit
from indelible.train.evaluate import accuracy, check_classifier, success_rate
from indelible.train.presets import PRESETS, Start
from indelible.train.processes import Group, from_first, joined
from indelible.train.recipes import RECIPES
from indelible.train.settings import Precision
from indelible.train.starting import elsewhere, must_start
from indelible.verify import Verdict, verify

__all__ = ["EMBEDDINGS", "Embedded", "Embedding", "EmbeddingMethod", "embed", "key_for", "settings_of"]

EMBEDDINGS = MethodRegistry(
    "embedding method", group="indelible.embeddings", base="indelible.embed.base:EmbeddingMethod"
)


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A protected model.

    Attributes:
        model: Of the class that came in, with the same ``state_dict`` keys.
        history: One row an epoch.
        record: What was run, with what, and what came out.
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
            "watermark more weight (a larger alpha or fraction), and embed again."
        )
    return (
        "Do not release this model: its watermark cannot be proven. Use a codebook, the default key (leave out target "
        "and labels): with one target class a network learns any mark as readily as this one."
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingMethod(Method):
    """Base of embedding methods: settings as fields, the work in :meth:`run`."""

    cpu_settings: ClassVar[Mapping[str, Any]] = {}
    """What the ``cpu`` preset changes in this method's own settings."""
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What a recipe (:mod:`indelible.train.recipes`) changes in them, by its name."""
    alone: ClassVar[str] = ""
    """Why it cannot be shared among processes; empty if it can."""
    changes_model: ClassVar[bool] = True
    """False for a fingerprint, which is read off a model."""

    @classmethod
    def for_codebook(cls, marks: int) -> Mapping[str, Any]:  # noqa: ARG003 - methods override it
        """Return what a codebook of so many marks changes in the defaults, which are for one mark on fixed samples."""
        return {}

    def key_for(self, key: Key) -> Key:
        """Return the key that this method embeds, made of the one that the owner gave; by default that one."""
        return key

    @abstractmethod
    def run(self, job: "Embedding") -> None:
        """Embed, by one or more calls of ``job.train``."""


@dataclass(kw_only=True)
class Embedding:
    """One embedding under way: what a method works with.

    Attributes:
        model: The model to train, a copy of the user's.
        data: The owner's images.
        key: The key that is embedded; a method that makes a fingerprint puts it here.
        settings: How to train.
        seed: The run's seed.
        start: ``"scratch"``, or ``"trained"`` when the model comes trained.
        test: Images for evaluation only, or None.
        folder: Where to keep checkpoints and history, or None.
        device: Where to train.
        figures: What the method noted for its record.
        images: Image passes outside training.
        seconds: Time outside training.
    """

    model: nn.Module
    data: Data
    key: Key
    settings: TrainSettings
    seed: int
    start: Start = "scratch"
    test: Data | None = None
    folder: Path | None = None
    device: str = "auto"
    phases: list[Fitted] = field(default_factory=list)
    samples: WatermarkSamples | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    images: int = 0
    seconds: float = 0.0

    def train(
        self, data: Data, objective: Objective, samples: WatermarkSamples | None, *,
        settings: TrainSettings | None = None, phase: str = "embedding", model: nn.Module | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        """Train the model on ``data``.

        Args:
            data: What to train on.
            objective: What to minimise.
            samples: The watermark samples that this embeds, or None.
            settings: How to train; by default the run's settings.
            phase: What this training is called; a method of several phases names each differently.
            model: Train this one and measure only its BA; by default the model that is protected.
            seed: Of this training; by default the run's.
        """
        self.samples, trained = samples, self.model if model is None else model
        identity = {"key": self.key.digest, "data": data.digest(), "start": tensor_digest(trained.state_dict())}
        fitted = fit(
            trained, data, settings or self.settings, seed=self.seed if seed is None else seed, objective=objective,
            evaluate=self.evaluate if model is None else self.accuracy, folder=self.folder, identity=identity,
            device=self.device, phase=phase, earlier=self.history(),
        )  # fmt: skip
        self.phases.append(fitted)

    def train_marked(
        self, objective: Objective, fraction: float, negatives: float, *, settings: TrainSettings | None = None,
        phase: str = "embedding",
    ) -> None:  # fmt: skip
        """Train the model on the owner's images with the key's marks among them.

        A codebook is stamped on rows of every batch. Other keys have fixed samples that replace some of the images.

        Args:
            objective: What to minimise on the marked batches.
            fraction: Share of the rows, or of the images, that carry the mark.
            negatives: Share of them that carry a foreign mark under their true label.
            settings: How to train; by default the run's settings.
            phase: What this training is called.
        """
        if self.key.labels == "codebook":
            stamped = StampedObjective(
                objective, self.key, fraction=fraction, negatives=negatives, normalize=self.settings.normalize,
                seed=self.seed,
            )  # fmt: skip
            self.train(self.data, stamped, None, settings=settings, phase=phase)
        else:
            mixed, samples = mix(self.data, self.key, fraction, negatives)
            self.train(mixed, objective, samples, settings=settings, phase=phase)

    def history(self) -> list[Mapping[str, Any]]:
        """Return the rows of all phases so far."""
        return [row for phase in self.phases for row in phase.history]

    def note(self, **figures: Any) -> None:
        """Add figures to the record."""
        self.figures |= figures

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


def embed(
    model: nn.Module,
    data: Any,
    key: Key,
    method: str | EmbeddingMethod = "app",
    *,
    preset: str = "paper",
    recipe: str | None = None,
    start: Start = "scratch",
    train: TrainSettings | Mapping[str, Any] | None = None,
    seed: int = 0,
    test: Any = None,
    folder: str | Path | None = None,
    device: str = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    **settings: Any,
) -> Embedded:
    """Train a copy of ``model`` so that it carries the watermark of ``key``.

    Args:
        model: Any classifier of the key's classes.
        data: The owner's images: data set, pair (images, labels), folder, ``.npz``.
        key: The owner's key.
        method: A registered name (``indelible embed --list``), ``"package.module:Class"``, or a method value.
        preset: ``"paper"`` (100 epochs, a GPU job) or ``"cpu"``.
        recipe: Changes the preset, and the settings of a method given by its name: ``"light"`` makes APP's passes
            cheaper, ``"fast"`` shortens the training as well.
        start: ``"trained"`` protects a model that is trained already: the preset's short form, at a low rate.
        train: Training settings, or a mapping of changes to the preset's.
        seed: The same seed and settings give the same bits on the same machine.
        test: Images for evaluation only; BA and WSR on them go into history and record.
        folder: Keep checkpoints and history there; a run that was broken off there is continued.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
        devices: Processes on this machine, one device each; more than one are started, and the script needs
            ``if __name__ == "__main__":``. By default one - or, under torchrun, all that it launched.
        nodes: Machines on which this call is made.
        settings: Settings of the method, when ``method`` is a name: ``eps=0.02``.

    Returns:
        The protected model with its history and record; ``model`` itself is unchanged.
    """
    check_trainable(model)
    check_is_key(key, Key)
    _, value = _resolved(method, preset, recipe, settings, key)
    if must_start(devices, nodes):
        if value.alone:
            raise InputError(f"this method runs in one process: {value.alone}. Leave out devices and nodes.")
        arguments = {
            "data": data, "key": key, "method": method, "preset": preset, "recipe": recipe, "start": start,
            "train": train, "seed": seed, "test": test, "folder": folder, "device": device, **settings,
        }  # fmt: skip
        made = elsewhere(embed, model, arguments, devices=devices, nodes=nodes)
        # Samples are a function of key and data: they are drawn again here rather than sent back.
        count, own = made["record"].inputs["samples"], value.key_for(key)
        again = None if count is None else own.samples(as_data(data, classes=key.classes), purpose="embed", count=count)
        how = made["record"].settings["train"]
        carriers = as_data(data if test is None else test, classes=key.classes)
        found = _verdict(made["model"], own, carriers, again, test is not None, TrainSettings.from_json(how).normalize)
        return Embedded(**made, samples=again, key=own, verdict=found)
    with joined(devices=devices, nodes=nodes, device=device) as group:
        return _embed(
            model, data, key, method, preset, recipe, start, train, seed, test, folder, device, settings, group
        )


def _embed(
    model: nn.Module, data: Any, key: Key, method: str | EmbeddingMethod, preset: str, recipe: str | None,
    start: Start, train: TrainSettings | Mapping[str, Any] | None, seed: int, test: Any, folder: str | Path | None,
    device: str, settings: Mapping[str, Any], group: Group,
) -> Embedded:  # fmt: skip
    """Do the work of :func:`embed`, in each of its processes."""
    name, value = _resolved(method, preset, recipe, settings, key)
    if group.world > 1 and value.alone:
        raise InputError(f"the method {name!r} runs in one process: {value.alone}. Leave out devices and nodes.")
    key = value.key_for(key)
    how = train if isinstance(train, TrainSettings) else _training(preset, recipe, start, device, train or {})
    how = how.but(precision=precision_for(model, how.precision))
    owner = as_data(data, classes=key.classes)
    judge = None if test is None else as_data(test, classes=key.classes)
    key.check_fits(owner)
    check_finite(model)
    check_classifier(model, owner, normalize=how.normalize)
    job = Embedding(
        model=copy.deepcopy(model), data=owner, key=key, settings=how, seed=seed, start=start, test=judge,
        folder=None if folder is None else Path(folder), device=device,
    )  # fmt: skip
    compared = start == "trained" and value.changes_model
    before = {f"{name}_before": rate for name, rate in job.evaluate(model).items()} if compared else {}
    with kept_frozen(job.model):
        value.run(job)
    copy_modes(model, job.model)
    key = job.key
    record = Record(
        verb="embed", method=name, seed=seed,
        settings={
            "method": value.to_json(), "train": how.to_json(), "start": start, "device": device, **group.to_json()
        },
        inputs={
            "data": owner.name, "data_digest": owner.digest(), "images": len(owner), "key": key.digest,
            "kind": key.kind, "scheme": key.scheme, "target": key.target, "labels": key.labels,
            "samples": None if job.samples is None else len(job.samples),
            "model": type(model).__name__, "model_digest": tensor_digest(model.state_dict()),
        },
        metrics={
            **from_first(lambda: job.evaluate(job.model)), **before, **job.figures,
            "model_digest": tensor_digest(job.model.state_dict()),
        },
        seconds=job.seconds + sum(phase.seconds for phase in job.phases),
        images=job.images + sum(phase.images for phase in job.phases),
        hardware=hardware(next(job.model.parameters()).device),
    )  # fmt: skip
    carriers = owner if judge is None else judge
    # As JSON: processes exchange nothing that would have to be unpickled.
    said = from_first(
        lambda: _verdict(job.model, key, carriers, job.samples, judge is not None, how.normalize).to_json()
    )  # fmt: skip
    verdict = Verdict.from_json(said)
    return Embedded(
        model=job.model, history=job.history(), record=record, samples=job.samples, key=key, verdict=verdict
    )


def _verdict(
    model: nn.Module, key: Key, carriers: Data, samples: WatermarkSamples | None, accurate: bool,
    normalize: Normalization | None,
) -> Verdict:  # fmt: skip
    """Verify a finished model with its own key."""
    return verify(
        model, key, carriers, embedded=samples if key.labels == "keyed" else None, accuracy=accurate,
        normalize=normalize,
    )  # fmt: skip


def _resolved(
    method: str | EmbeddingMethod, preset: str, recipe: str | None, settings: Mapping[str, Any], key: Key
) -> tuple[str, EmbeddingMethod]:  # fmt: skip
    """Return a method's name and value; a name takes what preset, key and recipe change."""
    if isinstance(method, str):
        settings = settings_of(method, preset, recipe, settings, key.marks)
    name, value = resolve(EMBEDDINGS, method, settings)
    check_recipe(recipe, type(value), EMBEDDINGS)
    return name, value


def key_for(
    key: Key, method: str | EmbeddingMethod, preset: str = "paper", recipe: str | None = None, **settings: Any
) -> Key:
    """Return the key that a method embeds when it is given ``key``; arguments as in :func:`embed`."""
    return _resolved(method, preset, recipe, settings, key)[1].key_for(key)


def settings_of(
    method: str, preset: str, recipe: str | None, settings: Mapping[str, Any], marks: int | None = None
) -> dict[str, Any]:
    """Return the settings of a method; all that is not in them are its defaults.

    In this order, the later wins: what the preset changes, what a codebook of so many marks changes, what the recipe
    changes, what is given.
    """
    build = EMBEDDINGS[method].build
    changes = {
        **(build.cpu_settings if preset == "cpu" else {}),
        **({} if marks is None else build.for_codebook(marks)),
    }
    named = {} if recipe is None else build.recipes.get(RECIPES[recipe].name, {})
    return {**changes, **named, **settings}


def _training(
    preset: str, recipe: str | None, start: Start, device: str, given: Mapping[str, Any]
) -> TrainSettings:  # fmt: skip
    changes = {} if recipe is None else RECIPES[recipe].changes(preset, start, device)
    return PRESETS[preset].start(start).but(**{**changes, **given})


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


def copy_modes(source: nn.Module, target: nn.Module) -> None:
    """Put every layer of ``target``, a copy of ``source``, into the mode (training or evaluation) of its original."""
    for original, layer in zip(source.modules(), target.modules(), strict=True):
        layer.training = original.training
