"""Pictures of marks: galleries of samples and answers to a codebook inside a page; a contact sheet as its own file.

A contact sheet shows images without a mark above the same images with it (or the samples that take their place). That
of a codebook has a tile for each of its marks, all on one image, with the mark's number and secret class below.

The answers to a codebook are marks x classes: how often each mark was answered with each class. A template draws them
as inline SVG, so that a page can hold many and needs no matplotlib. One hue that deepens with the count reads under
every kind of colour vision and in gray; the count is written too.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import IndelibleError
from indelible.base.files import replacing
from indelible.data.catalog import load
from indelible.data.images import Data
from indelible.keys.key import Key
from indelible.keys.samples import WatermarkSamples
from indelible.report.format import p_value
from indelible.report.model_stages import ModelStages, run_of
from indelible.report.page_look import drawn_by
from indelible.train.run_folder import Run
from indelible.verification.statistics.codebook_tests import codebook_scores, held_marks

if TYPE_CHECKING:
    from markupsafe import Markup
    from PIL.Image import Image

_PICTURES, _PICTURE_SIDE = 6, 112
_GAP, _COLUMNS, _TILE_SIDE, _LINE, _PAIRS = 2, 4, 128, 16, 8


def galleries(models: Sequence[ModelStages]) -> list[Mapping[str, Any]]:
    """Return what a page shows of every key among ``models``; models that share a key share its pictures.

    Each has its ``key``, the labels ``of`` the models, the ``answer`` of a marked model where all samples have one, and
    ``pictures``: data URIs of the original, if it is shown, and of the marked image, and the name of a class. Of a
    codebook that is the mark's secret class, and ``plain`` is the image that all marks are on; else it is the true one.
    Where nothing can be drawn, ``missing`` says why.
    """
    owners: dict[str, tuple[Run, list[str]]] = {}
    for model in models:
        if model.marked:
            run = run_of(model.stages[0])
            name = str(run.record.inputs.get("key", run.folder))
            owners.setdefault(name, (run, []))[1].append(model.label)
    found: list[Mapping[str, Any]] = []
    for run, labels in owners.values():
        try:
            found.append({"of": labels, "missing": "", **_gallery(run.key(), run.images()[2])})
        except IndelibleError as error:
            found.append({"of": labels, "missing": f"The pictures could not be drawn: {error}"})
    return found


def _gallery(key: Key, test: Data) -> Mapping[str, Any]:
    """Draw some samples of a key; of a codebook each mark once."""
    book, fingerprint = key.labels == "codebook", key.fingerprint
    if fingerprint is not None:
        samples = fingerprint.samples
        true = samples.labels if samples.true is None else samples.true
    elif book:
        samples = marks_once(key, test)
        true = samples.labels
    else:
        eligible = len(test) if key.target is None else int((test.labels != key.target).sum())
        # Few more than needed are drawn, one of each class is shown: six boots say less than six garments.
        samples = key.samples(test, purpose="verify", count=min(eligible, 20 * _PICTURES))
        true = test.labels[samples.carriers]
    shown = range(len(samples)) if book else _varied(true)
    # What a fingerprint was made from is in the owner's images.
    paired = fingerprint is None and not book and key.kind not in {"unrelated", "plain"}
    originals: list[str | None] = [None] * len(shown)
    if paired:
        originals = [png_uri(image) for image in test.gather(samples.carriers[shown]).images]
    plain = None
    if book and key.kind != "unrelated":
        first = test.gather(samples.carriers[:1])
        plain = {"uri": png_uri(first.images[0]), "true": test.classes[int(first.labels[0])]}
    return {
        "key": key, "plain": plain, "answer": "" if key.target is None else test.classes[key.target],
        "pictures": [
            {"original": original, "marked": png_uri(samples.images[at]), "true": test.classes[int(true[at])]}
            for original, at in zip(originals, shown, strict=True)
        ],
    }  # fmt: skip


def _varied(labels: Tensor) -> list[int]:
    """Return rows whose labels differ, as far as there are such."""
    first = {label: row for row, label in reversed(list(enumerate(labels.tolist())))}
    rows = sorted(first.values())
    others = [row for row in range(len(labels)) if row not in set(rows)]
    return sorted((rows + others)[:_PICTURES])


def png_uri(image: Tensor) -> str:
    """Return a uint8 image (C, H, W) as a PNG data URI, enlarged without smoothing so that pixels can be seen."""
    file = io.BytesIO()
    _enlarged(image, _PICTURE_SIDE).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _enlarged(image: Tensor, side: int) -> "Image":
    """Return a uint8 image (C, H, W) about ``side`` pixels large, each of its own as a square; gray if C is below 3."""
    from PIL import Image

    channels, height, width = image.shape
    times = max(1, round(side / max(height, width)))
    shown = image[:3] if channels >= 3 else image[:1]
    plain = Image.fromarray(shown.cpu().permute(1, 2, 0).squeeze(-1).contiguous().numpy())
    return plain.resize((times * width, times * height), Image.Resampling.NEAREST)


def marks_once(key: Key, carriers: Data) -> WatermarkSamples:
    """Return one sample of every mark of a codebook, all on one image of ``carriers``, in the order of the marks."""
    return key.samples(carriers, purpose="verify", count=len(key.codebook()))


def codebook_tiles(key: Key, carriers: Data) -> "Image":
    """Return the sheet of a codebook: a tile for each mark, its number and its secret class below."""
    samples = marks_once(key, carriers)
    captions = [f"{number}: {carriers.classes[label]}" for number, label in enumerate(samples.labels.tolist(), 1)]
    return _tiles(samples.images, captions, _COLUMNS)


def _tiles(images: Tensor, captions: Sequence[str], columns: int) -> "Image":
    """Return uint8 images (N, C, H, W) side by side, enlarged, with captions below where there are any."""
    from PIL import Image, ImageDraw

    pictures = [_enlarged(image, _TILE_SIDE) for image in images]
    width, height = pictures[0].size
    wide, high = max(width, _TILE_SIDE) + 2 * _GAP, height + (_LINE if captions else 0) + 2 * _GAP
    columns = min(columns, len(images))
    whole = Image.new("RGB", (columns * wide, -(-len(images) // columns) * high), "white")
    pen = ImageDraw.Draw(whole)
    for number, picture in enumerate(pictures):
        left, top = number % columns * wide + _GAP, number // columns * high + _GAP
        whole.paste(picture, (left, top))
        if captions:
            # The default font knows Latin letters only; what does not fit is cut off.
            text = captions[number].encode("latin-1", "replace").decode("latin-1")
            while text and pen.textlength(text) > wide - 2 * _GAP:
                text = text[:-1]
            pen.text((left, top + height + 2), text, fill="black")
    return whole


def write_contact_sheet(key: Key, carriers: Data, path: str | Path) -> None:
    """Write the sheet as a PNG; that of a codebook, which shows every secret class, for its owner only (mode 0600)."""
    secret = key.labels == "codebook"
    if secret:
        picture = codebook_tiles(key, carriers)
    else:
        samples = key.samples(carriers, purpose="verify", count=_PAIRS)
        plain = carriers.gather(samples.carriers).images.cpu()
        picture = _tiles(torch.cat([plain, samples.images]), [], len(samples))
    with replacing(path, mode=0o600 if secret else 0o644) as temporary:
        picture.save(temporary, format="PNG")


@dataclass(frozen=True)
class Answers:
    """What a model answered to the marks of a codebook."""

    # for each mark and class, how many carriers of another class were answered with it
    table: tuple[tuple[int, ...], ...]
    drawn: tuple[int, ...]  # the secret class of each mark
    carriers: int  # images that each mark was asked on
    p_value: float | None  # of the verdict

    @property
    def depths(self) -> list[list[int]]:
        """How deep the colour of each cell is, from 1 to 12; 0 for a class that was never answered."""
        counts = np.array(self.table)
        deep = np.maximum(1, np.round(12 * counts / self.carriers)).astype(int)
        found: list[list[int]] = np.where(counts > 0, deep, 0).tolist()
        return found

    @property
    def own(self) -> tuple[bool, ...]:
        """Whether each mark has its own class on top: more answers over the average of all marks than any other."""
        scores, drawn = codebook_scores(np.array(self.table)), np.array(self.drawn)
        return tuple(bool(held_marks(scores[at : at + 1], drawn[at : at + 1])) for at in range(len(drawn)))


def answers_of(verdict: Any) -> Answers | None:
    """Read the answers from a verdict, or from what a record measured; None without those of a codebook."""
    found = verdict if isinstance(verdict, Mapping) else {}
    table: Any = found.get("table")
    drawn: Any = found.get("drawn")
    if not isinstance(table, list | tuple) or not table or not all(map(_is_row, [drawn, *table])):
        return None
    if len({len(row) for row in table}) > 1 or len(drawn) != len(table) or max(drawn) >= len(table[0]):
        return None
    counts, p = found.get("counts"), found.get("p_value")
    carriers = counts.get("carriers") if isinstance(counts, Mapping) else None
    return Answers(
        tuple(map(tuple, table)), tuple(drawn), max(int(carriers or 0), *map(max, table)),
        float(p) if isinstance(p, int | float) else None,
    )  # fmt: skip


def _is_row(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) > 0 and all(isinstance(one, int) and one >= 0 for one in row)


def caption(answers: Answers) -> str:
    """Say in a sentence what the picture shows and how likely that is by chance."""
    p = answers.p_value
    chance = "at least 50 % of the time" if p is not None and p >= 0.5 else f"with probability at most {p_value(p)}"
    said = "no p-value was kept." if p is None else f"a model that never saw the key does as well {chance}."
    return f"{sum(answers.own)} of {len(answers.drawn)} marks are answered with their secret class; {said}"


def heat_map(answers: Answers, classes: Sequence[str] = ()) -> "Markup":
    """Return the picture as ``<svg>``; without names of the classes, their numbers stand above the columns."""
    count = len(answers.table[0])
    named = classes if len(classes) == count else list(map(str, range(count)))
    return drawn_by("heat_map.svg.j2", answers=answers, caption=caption(answers), classes=named)


@cache
def class_names(data: str) -> Sequence[str]:
    """Return the names of the classes; none if the data set is not at hand, and numbers take their place."""
    try:
        return load(data)[1].classes
    except IndelibleError:
        return ()
