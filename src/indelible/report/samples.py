"""Sample pictures: test images and what a key makes of them, as PNG inside the page."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from indelible.base.errors import IndelibleError
from indelible.data.images import Data
from indelible.keys.key import Key
from indelible.keys.samples import WatermarkSamples
from indelible.report.collect import Entry
from indelible.report.sheet import marks_once
from indelible.train.run import Run

__all__ = ["Gallery", "Picture", "galleries", "png_uri"]

_PICTURES = 6
_SIDE = 112


@dataclass(frozen=True)
class Picture:
    """One sample: data URIs of the original (None if the mark replaces the whole image) and of the marked image.

    ``true`` is the class of the original; of a codebook's mark the secret class.
    """

    original: str | None
    marked: str
    true: str


@dataclass(frozen=True)
class Gallery:
    """Samples of one key.

    Attributes:
        kind: Kind of the mark.
        answer: The class that a marked model answers with; empty when each sample has its own, or is to be misread.
        of: Labels of the models that carry it.
        pictures: The samples.
        missing: Why there are none, if so.
        untargeted: A marked model is to answer them wrongly, with whichever class.
        plain: Of a codebook, the image that all marks are drawn on; None for unrelated images.
        codebook: One picture for each mark, with its secret class.
    """

    kind: str
    answer: str
    of: tuple[str, ...]
    pictures: tuple[Picture, ...]
    missing: str = ""
    untargeted: bool = False
    plain: Picture | None = None
    codebook: bool = False


def galleries(entries: Sequence[Entry]) -> list[Gallery]:
    """Return samples of every key among ``entries``; models that share a key share its pictures."""
    owners: dict[str, tuple[Run, list[str]]] = {}
    for entry in entries:
        if entry.marked:
            run = entry.stages[0].run
            name = str(run.record.inputs.get("key", run.folder))
            owners.setdefault(name, (run, []))[1].append(entry.label)
    return [_gallery(run, labels) for run, labels in owners.values()]


def _gallery(run: Run, labels: Sequence[str]) -> Gallery:
    try:
        key = run.key()
        _, _, test = run.images()
        if key.fingerprint is not None:
            return Gallery(key.kind, "", tuple(labels), _queries(key.fingerprint.samples, test.classes))
        if key.labels == "codebook":
            return _codebook(key, test, labels)
        eligible = len(test) if key.target is None else int((test.labels != key.target).sum())
        # Few more than needed are drawn, one of each class is shown: six boots say less than six garments.
        samples = key.samples(test, purpose="verify", count=min(eligible, 20 * _PICTURES))
    except IndelibleError as error:
        return Gallery("", "", tuple(labels), (), f"The pictures could not be drawn: {error}")
    true = test.labels[samples.carriers]
    shown = _varied(true)
    originals = test.gather(samples.carriers[shown]).images
    pictures = []
    for original, at in zip(originals, shown.tolist(), strict=True):
        kept = None if key.kind in {"unrelated", "plain"} else png_uri(original)
        pictures.append(Picture(kept, png_uri(samples.images[at]), test.classes[int(true[at])]))
    # Keyed labels belong to the embedded samples; what is drawn here on test images only shows the mark.
    answer = "" if key.target is None else test.classes[key.target]
    return Gallery(key.kind, answer, tuple(labels), tuple(pictures), untargeted=key.labels == "untargeted")


def _codebook(key: Key, test: Data, labels: Sequence[str]) -> Gallery:
    """Return one picture for each mark, all on the same image, with its secret class."""
    samples = marks_once(key, test)
    pictures = tuple(
        Picture(None, png_uri(image), test.classes[label])
        for image, label in zip(samples.images, samples.labels.tolist(), strict=True)
    )
    plain = None
    if key.kind != "unrelated":
        found = test.gather(samples.carriers[:1])
        uri = png_uri(found.images[0])
        plain = Picture(uri, uri, test.classes[int(found.labels[0])])
    return Gallery(key.kind, "", tuple(labels), pictures, plain=plain, codebook=True)


def _queries(samples: WatermarkSamples, classes: Sequence[str]) -> tuple[Picture, ...]:
    """Return some of a fingerprint's queries; what they were made from is in the owner's images."""
    true = samples.labels if samples.true is None else samples.true
    return tuple(Picture(None, png_uri(samples.images[at]), classes[int(true[at])]) for at in _varied(true).tolist())


def _varied(labels: Tensor) -> Tensor:
    """Return rows whose labels differ, as far as there are such."""
    first = {label: row for row, label in reversed(list(enumerate(labels.tolist())))}
    rows = sorted(first.values())
    others = [row for row in range(len(labels)) if row not in set(rows)]
    return torch.tensor(sorted((rows + others)[:_PICTURES]))


def png_uri(image: Tensor) -> str:
    """Return a uint8 image (C, H, W) as a PNG data URI, enlarged without smoothing so that pixels can be seen."""
    from PIL import Image

    channels, height, width = image.shape
    shown = image[:3] if channels >= 3 else image[:1]
    times = max(1, round(_SIDE / max(height, width)))
    large = shown.cpu().repeat_interleave(times, 1).repeat_interleave(times, 2).permute(1, 2, 0).squeeze(-1)
    file = io.BytesIO()
    Image.fromarray(large.contiguous().numpy()).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
