"""t-SNE: penultimate features of clean and watermark samples, in two dimensions.

Paper: Gan et al., ICCV 2023, Figure 7 and Appendix F; the map is that of van der Maaten and Hinton, JMLR 2008, by
scikit-learn. A row of panels is one model on one path, embedded together, so that its panels compare. Different models
have different feature spaces: their rows are embedded apart, and only the shapes of their clusters compare.

| name | default | source |
|---|---|---|
| ``path`` | ``"still"`` | Figure 7; ``"adversarial"``: Appendix F.1; ``"tuning"``: Appendix F.2 |
| ``panels`` | 5 | ours: panels of a path, with the model itself |
| ``size`` | 2e-3 | Appendix F.1: relative distance between panels along d_adv |
| ``every``, ``lr`` | 50, 0.05 | Appendix F.2: iterations between panels (200 in all), learning rate |
| ``images``, ``marked`` | 400, 100 | ours: clean test images and watermark samples in a panel |
| ``perplexity`` | 30 | scikit-learn's |
| ``statistics`` | 512 | ours: clean images that BatchNorm is estimated on along d_adv |

A map can mislead, so that two numbers are taken in the feature space itself:

    mixed   share of the ten nearest clean neighbours of watermark samples that are not of the target class
    spread  mean distance of watermark features from their centre, relative to that of the target class's clean features
"""

import copy
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from indelible.analyze.analysis import Analysis
from indelible.analyze.directions import removal_direction, tuning_settings, weights_of
from indelible.analyze.marked_model import MarkedModel, some_images
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.methods import Method
from indelible.base.progress import Progress
from indelible.base.seeding import derive_seed
from indelible.nn import taps
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import Norm, perturbed
from indelible.nn.statistics import estimate_statistics
from indelible.report.figures import FIGURES, Figure
from indelible.train import fit
from indelible.train.evaluate import evaluating
from indelible.train.fit_and_watch import watched
from indelible_companions.analyze.tsne_figure import tsne_drawing

PathKind = Literal["still", "adversarial", "tuning"]
PATHS: tuple[PathKind, ...] = ("still", "adversarial", "tuning")
_NEIGHBOURS = 10


@dataclass(frozen=True, kw_only=True)
class TsneSettings(Method):
    """What to show; the table in the module's header explains each setting."""

    path: PathKind = "still"
    panels: int = 5
    size: float = 2e-3
    every: int = 50
    lr: float = 0.05
    images: int = 400
    marked: int = 100
    perplexity: float = 30.0
    statistics: int = 512
    norm: Norm = "global"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.path not in PATHS:
            raise UnknownNameError("path", self.path, PATHS)
        if self.path != "still" and self.panels < 2:
            raise InputError(f"a path needs at least 2 panels, got panels={self.panels}. Use path='still' for one.")


@dataclass(frozen=True, kw_only=True)
class FeaturePanel:
    """One panel."""

    title: str  # where on the path it is
    clean: tuple[tuple[float, float], ...]  # (x, y) of each clean image
    marked: tuple[tuple[float, float], ...]  # (x, y) of each watermark sample
    wsr: float  # of the watermark samples shown
    mixed: float  # see the module's header
    spread: float | None  # see the module's header


@dataclass(frozen=True, kw_only=True)
class PanelRow:
    """One model's panels, embedded together."""

    label: str
    panels: tuple[FeaturePanel, ...]


@dataclass(frozen=True, kw_only=True)
class Tsne(Analysis):
    """Features of some models in two dimensions."""

    figure: ClassVar[str] = "tsne"
    settings: TsneSettings  # what is shown
    classes: tuple[str, ...]  # names of the classes
    labels: tuple[int, ...]  # class of each clean image; the same images in every panel
    target: int  # the class of the watermark
    models: tuple[PanelRow, ...]  # one row of panels each

    @classmethod
    def of_models(
        cls,
        models: Sequence[MarkedModel],
        settings: Mapping[str, Any],
        folder: Path,  # noqa: ARG003 - it is quick enough to begin anew
    ) -> "Tsne":
        """Embed the features of each model, as ``indelible analyze tsne`` does."""
        return tsne(models, TsneSettings.of(settings))


FIGURES[Tsne.figure] = Figure(
    tsne_drawing, title="Features in two dimensions",
    note="Panels of one row share one map; those of different models do not. The share of neighbours is counted in the "
    "feature space, not in the picture.",
)  # fmt: skip


def mixed_share(clean: Tensor, labels: Tensor, marked: Tensor, target: int, neighbours: int = _NEIGHBOURS) -> float:
    """Return how many of the nearest clean neighbours of watermark features are not of the target class, as a fraction.

    ``clean`` is (n, D), with classes ``labels`` int64 (n,); ``marked`` is (m, D).
    """
    near = torch.cdist(marked, clean).topk(min(neighbours, len(clean)), largest=False).indices
    return float((labels[near] != target).double().mean())


def relative_spread(features: Tensor, reference: Tensor) -> float | None:
    """Return the mean distance of ``features`` (m, D) from their centre over that of ``reference`` (n, D).

    None where the reference has no extent.
    """
    own, other = ((rows - rows.mean(0)).norm(dim=1).mean() for rows in (features, reference))
    return float(own / other) if len(features) and float(other) > 0 else None


def last_layer(model: nn.Module, images: Tensor) -> str:
    """Return the name of the linear layer that gives the logits."""
    with evaluating(model):
        size = logits_of(model(images)).shape
    call = taps.last_layer(model, images)
    if call is None or not isinstance(call.layer, nn.Linear) or call.gave != size:
        raise InputError(
            f"{type(model).__name__} has no linear layer that gives its {size[1]} logits, so that it has no "
            "penultimate features. Wrap its head into an nn.Linear."
        )
    return call.place[0]


def features_of(model: nn.Module, batches: Sequence[Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Return what the layer ``name`` reads, float (N, D), and the predicted classes, int64 (N,), on the CPU."""
    layer = model.get_submodule(name)
    with evaluating(model):
        found = [taps.layer_inputs(model, layer, images).flatten(1) for images in batches]
        answers = [logits_of(model(images)).argmax(1) for images in batches]
    return torch.cat(found).float().cpu(), torch.cat(answers).cpu()


def tsne(subjects: Sequence[MarkedModel], settings: TsneSettings | None = None) -> Tsne:
    """Embed features of clean and watermark samples, for each of some models of one task, on its path."""
    chosen = settings or TsneSettings()
    if importlib.util.find_spec("sklearn") is None:
        raise InputError('t-SNE needs scikit-learn. Run: pip install "indelible-companions[analysis]"')
    if not subjects:
        raise InputError("t-SNE needs at least one model.")
    first = subjects[0]
    if any(one.test.classes != first.test.classes or one.target != first.target for one in subjects):
        raise InputError("the models have different classes or target classes. Show them one at a time.")
    clean = some_images(first.test, chosen.images, chosen.seed)
    with Progress("t-SNE", len(subjects)) as bar:
        rows = []
        for subject in subjects:
            rows.append(_row(subject, chosen))
            bar.advance()
            bar.line(f"t-SNE of {subject.label}: {len(rows[-1].panels)} panel(s)")
    return Tsne(
        settings=chosen, classes=tuple(first.test.classes), labels=tuple(clean.labels.tolist()),
        target=first.target, models=tuple(rows),
    )  # fmt: skip


def _row(subject: MarkedModel, settings: TsneSettings) -> PanelRow:
    data = some_images(subject.test, settings.images, settings.seed)
    plain = data.gather(torch.arange(len(data)))
    samples = subject.marked(settings.marked)
    batches = [*subject.batches(plain.images), *subject.batches(samples.images)]
    taken = [
        (title, *features_of(model, batches, last_layer(model, batches[0][:2])))
        for title, model in _stops(subject, settings)
    ]
    places = _embed(torch.cat([found for _, found, _ in taken]), settings).split([len(found) for _, found, _ in taken])
    labels, count = plain.labels.cpu(), len(plain)
    panels = []
    for (title, found, answer), place in zip(taken, places, strict=True):
        spots = [(float(x), float(y)) for x, y in place.tolist()]
        clean, marked = found[:count], found[count:]
        panels.append(
            FeaturePanel(
                title=title, clean=tuple(spots[:count]), marked=tuple(spots[count:]),
                wsr=float((answer[count:] == samples.labels).double().mean()),
                mixed=mixed_share(clean, labels, marked, subject.target),
                spread=relative_spread(marked, clean[labels == subject.target]),
            )
        )  # fmt: skip
    return PanelRow(label=subject.label, panels=tuple(panels))


def _stops(subject: MarkedModel, settings: TsneSettings) -> Iterator[tuple[str, nn.Module]]:
    """Yield a title and the model at every panel of the path; the first is the model itself."""
    model = subject.copy()
    yield "" if settings.path == "still" else "0", model
    if settings.path == "adversarial":
        direction = removal_direction(subject, model, 500, settings.norm)
        clean = subject.clean_batches(subject.attacker, settings.statistics, settings.seed)
        for number in range(1, settings.panels):
            distance = number * settings.size
            with perturbed(weights_of(model), [distance * part for part in direction]):
                estimate_statistics(model, clean)
                yield f"{distance:g}", model
    elif settings.path == "tuning":
        kept: list[tuple[str, nn.Module]] = []

        def keep(tuned: nn.Module, _phase: str, step: int) -> None:
            if step % settings.every == 0:
                kept.append((str(step), copy.deepcopy(tuned).eval()))

        last = (settings.panels - 1) * settings.every
        how = tuning_settings(subject.attacker, steps=last, lr=settings.lr, normalize=subject.normalize)
        with watched(keep):
            thief = copy.deepcopy(subject.model)
            fit(thief, subject.attacker, how, seed=settings.seed, device=str(subject.device), phase="fine-tuning")
        yield from kept


def _embed(features: Tensor, settings: TsneSettings) -> Tensor:
    """Return (N, 2): the t-SNE of all panels of a row together; the same features and seed give the same map."""
    from sklearn.manifold import TSNE

    perplexity = min(settings.perplexity, (len(features) - 1) / 3)
    method = TSNE(
        n_components=2, perplexity=perplexity, init="pca", learning_rate="auto", n_jobs=1,
        random_state=derive_seed(settings.seed, "t-SNE") % 2**32,
    )  # fmt: skip
    return torch.from_numpy(method.fit_transform(features.numpy()))
