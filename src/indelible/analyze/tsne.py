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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from indelible.analyze.directions import adversarial_direction, tuning_settings, weights_of
from indelible.analyze.document import Analysis
from indelible.analyze.features import features_of, last_layer
from indelible.analyze.subject import Subject, some
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.methods import Method
from indelible.base.progress import Progress
from indelible.base.seeding import derive_seed
from indelible.nn.batchnorm_estimate import estimate_statistics
from indelible.nn.perturbation import Norm, perturbed
from indelible.train import fit
from indelible.train.watching import watched

__all__ = ["PATHS", "PathKind", "Row", "Sheet", "Tsne", "TsneSettings", "mixed_share", "relative_spread", "tsne"]

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
            raise InputError(f"a path has at least 2 panels, but {self.panels} are wanted. Use path='still' for one.")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One panel.

    Attributes:
        title: Where on the path it is.
        clean: (x, y) of each clean image.
        marked: (x, y) of each watermark sample.
        wsr: Of the watermark samples shown.
        mixed: See the module's header.
        spread: See the module's header.
    """

    title: str
    clean: tuple[tuple[float, float], ...]
    marked: tuple[tuple[float, float], ...]
    wsr: float
    mixed: float
    spread: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model's panels, embedded together."""

    label: str
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, kw_only=True)
class Tsne(Analysis):
    """Features of some models in two dimensions.

    Attributes:
        settings: What is shown.
        classes: Names of the classes.
        labels: Class of each clean image; the same images in every panel.
        target: The class of the watermark.
        models: One row of panels each.
    """

    figure: ClassVar[str] = "tsne"
    settings: TsneSettings
    classes: tuple[str, ...]
    labels: tuple[int, ...]
    target: int
    models: tuple[Row, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a dot."""
        found = []
        for row in self.models:
            for sheet in row.sheets:
                dots = [(self.classes[label], spot) for label, spot in zip(self.labels, sheet.clean, strict=True)]
                dots += [("watermark", spot) for spot in sheet.marked]
                found += [
                    {"model": row.label, "panel": sheet.title, "of": of, "x": x, "y": y} for of, (x, y) in dots
                ]  # fmt: skip
        return found

    def sentences(self) -> list[str]:
        """Say for each model what became of the cluster of watermark samples."""
        said = []
        for row in self.models:
            first, last = row.sheets[0], row.sheets[-1]
            words = f"{row.label}: {100 * first.mixed:.0f} % of the watermark samples' nearest clean neighbours are of "
            words += f"other classes than the target; they spread {_times(first.spread)} as wide as the target class "
            words += f"(WSR {100 * first.wsr:.0f} %)"
            if len(row.sheets) > 1:
                words += f". At the end of the path ({last.title}): {100 * last.mixed:.0f} %, "
                words += f"{_times(last.spread)}, WSR {100 * last.wsr:.0f} %"
            said.append(f"{words}.")
        return said


def _times(spread: float | None) -> str:
    return "an unknown number of times" if spread is None else f"{spread:.2f} times"


def mixed_share(clean: Tensor, labels: Tensor, marked: Tensor, target: int, neighbours: int = _NEIGHBOURS) -> float:
    """Return how many of the nearest clean neighbours of watermark features are not of the target class, as a fraction.

    Args:
        clean: (n, D).
        labels: int64 (n,), the classes of ``clean``.
        marked: (m, D).
        target: The class of the watermark.
        neighbours: How many are looked at.
    """
    near = torch.cdist(marked, clean).topk(min(neighbours, len(clean)), largest=False).indices
    return float((labels[near] != target).double().mean())


def relative_spread(features: Tensor, reference: Tensor) -> float | None:
    """Return the mean distance of ``features`` (m, D) from their centre over that of ``reference`` (n, D).

    None where the reference has no extent.
    """
    own, other = ((rows - rows.mean(0)).norm(dim=1).mean() for rows in (features, reference))
    return float(own / other) if len(features) and float(other) > 0 else None


def tsne(subjects: Sequence[Subject], settings: TsneSettings | None = None) -> Tsne:
    """Embed features of clean and watermark samples, for each model on its path.

    Args:
        subjects: Marked models of one task.
        settings: Which path, how many panels and images.
    """
    chosen = settings or TsneSettings()
    _check_installed()
    if not subjects:
        raise InputError("t-SNE needs at least one model.")
    first = subjects[0]
    if any(one.test.classes != first.test.classes or one.target != first.target for one in subjects):
        raise InputError("the models have different classes or target classes. Show them one at a time.")
    clean = some(first.test, chosen.images, chosen.seed)
    with Progress("t-SNE", len(subjects)) as bar:
        rows = []
        for subject in subjects:
            rows.append(_row(subject, chosen))
            bar.advance()
            bar.line(f"t-SNE of {subject.label}: {len(rows[-1].sheets)} panel(s)")
    return Tsne(
        settings=chosen, classes=tuple(first.test.classes), labels=tuple(clean.labels.tolist()),
        target=first.target, models=tuple(rows),
    )  # fmt: skip


def _row(subject: Subject, settings: TsneSettings) -> Row:
    data = some(subject.test, settings.images, settings.seed)
    plain = data.gather(torch.arange(len(data)))
    samples = subject.marked(settings.marked)
    batches = [*subject.batches(plain.images), *subject.batches(samples.images)]
    titles, taken, answers = [], [], []
    for title, model in _stops(subject, settings):
        found, answer = features_of(model, batches, last_layer(model, batches[0][:2]))
        titles.append(title)
        taken.append(found)
        answers.append(answer)
    places = _embed(torch.cat(taken), settings).split([len(found) for found in taken])
    labels, count = plain.labels.cpu(), len(plain)
    sheets = []
    for title, found, answer, place in zip(titles, taken, answers, places, strict=True):
        spots = [(float(x), float(y)) for x, y in place.tolist()]
        clean, marked = found[:count], found[count:]
        sheets.append(
            Sheet(
                title=title, clean=tuple(spots[:count]), marked=tuple(spots[count:]),
                wsr=float((answer[count:] == samples.labels).double().mean()),
                mixed=mixed_share(clean, labels, marked, subject.target),
                spread=relative_spread(marked, clean[labels == subject.target]),
            )
        )  # fmt: skip
    return Row(label=subject.label, sheets=tuple(sheets))


def _stops(subject: Subject, settings: TsneSettings) -> Iterator[tuple[str, nn.Module]]:
    """Yield a title and the model at every panel of the path."""
    if settings.path == "adversarial":
        yield from _along_adversarial(subject, settings)
    elif settings.path == "tuning":
        yield from _during_tuning(subject, settings)
    else:
        yield "", subject.copy()


def _along_adversarial(subject: Subject, settings: TsneSettings) -> Iterator[tuple[str, nn.Module]]:
    model = subject.copy()
    known = subject.embedded(500)
    batches = subject.batches(known.images)
    labels = known.labels.to(subject.device).split([len(batch) for batch in batches])
    direction = adversarial_direction(model, batches, labels, settings.norm)
    data = some(subject.attacker, settings.statistics, settings.seed)
    clean = subject.batches(data.gather(torch.arange(len(data))).images)
    yield "0", model
    for number in range(1, settings.panels):
        distance = number * settings.size
        with perturbed(weights_of(model), [distance * part for part in direction]):
            estimate_statistics(model, clean)
            yield f"{distance:g}", model


def _during_tuning(subject: Subject, settings: TsneSettings) -> Iterator[tuple[str, nn.Module]]:
    import copy

    last = (settings.panels - 1) * settings.every
    model = copy.deepcopy(subject.model)
    kept: list[tuple[str, nn.Module]] = [("0", subject.copy())]

    def keep(tuned: nn.Module, _phase: str, step: int) -> None:
        if step % settings.every == 0:
            kept.append((str(step), copy.deepcopy(tuned).eval()))

    how = tuning_settings(subject.attacker, steps=last, lr=settings.lr, normalize=subject.normalize)
    with watched(keep):
        fit(model, subject.attacker, how, seed=settings.seed, device=str(subject.device), phase="fine-tuning")
    yield from kept


def _check_installed() -> None:
    try:
        import sklearn
    except ImportError as error:
        raise InputError('t-SNE needs scikit-learn. Run: pip install "indelible[analysis]"') from error
    assert sklearn.__version__  # noqa: S101 - the import is the check


def _embed(features: Tensor, settings: TsneSettings) -> Tensor:
    """Return (N, 2): the t-SNE of all panels of a row together; the same features and seed give the same map."""
    from sklearn.manifold import TSNE

    perplexity = min(settings.perplexity, (len(features) - 1) / 3)
    method = TSNE(
        n_components=2, perplexity=perplexity, init="pca", learning_rate="auto", n_jobs=1,
        random_state=derive_seed(settings.seed, "t-SNE") % 2**32,
    )  # fmt: skip
    return torch.from_numpy(method.fit_transform(features.numpy()))
