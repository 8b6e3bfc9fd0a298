"""Pictures of marks: galleries of samples and answers to a codebook inside a page; a contact sheet as its own file.

A contact sheet shows images without a mark above the same images with it (or the samples that take their place). That
of a codebook has a tile for each of its marks, all on one image, with the mark's number and secret class below.

The answers to a codebook are marks x classes: how often each mark was answered with each class. A template draws them
as inline SVG, so that a page can hold many and needs no matplotlib. One hue that deepens with the count reads under
every kind of colour vision and in gray; the count is written too. The secret class of a mark is outlined: solid where
it is on top, dashed where it is not. The picture tells which mark has which class: a copy for others goes without it.
"""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
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
from indelible.report.format import BEFORE, p_value, stage_title
from indelible.report.model_stages import ModelStages, run_of
from indelible.report.page_look import drawn_by
from indelible.train.run_folder import Run
from indelible.verification.statistics.codebook import codebook_scores, held_marks

if TYPE_CHECKING:
    from markupsafe import Markup
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_PICTURES, _PICTURE_SIDE = 6, 112
_GAP, _COLUMNS, _TILE_SIDE, _LINE, _PAIRS = 2, 4, 128, 16, 8


@dataclass(frozen=True)
class GalleryPicture:
    """One sample: data URIs of the original (None if the mark replaces the whole image) and of the marked image.

    ``true`` is the class of the original; of a codebook's mark the secret class.
    """

    original: str | None
    marked: str
    true: str


@dataclass(frozen=True)
class Gallery:
    """Samples of one key."""

    kind: str  # kind of the mark
    answer: str  # the class that a marked model answers with; empty when each sample has its own, or is to be misread
    of: tuple[str, ...]  # labels of the models that carry it
    pictures: tuple[GalleryPicture, ...]  # the samples
    missing: str = ""  # why there are none, if so
    untargeted: bool = False  # a marked model is to answer them wrongly, with whichever class
    plain: GalleryPicture | None = None  # the image that a codebook's marks are drawn on; None for unrelated images
    codebook: bool = False  # one picture for each mark, with its secret class


def galleries(models: Sequence[ModelStages]) -> list[Gallery]:
    """Return samples of every key among ``models``; models that share a key share its pictures."""
    owners: dict[str, tuple[Run, list[str]]] = {}
    for model in models:
        if model.marked:
            run = run_of(model.stages[0])
            name = str(run.record.inputs.get("key", run.folder))
            owners.setdefault(name, (run, []))[1].append(model.label)
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
        pictures.append(GalleryPicture(kept, png_uri(samples.images[at]), test.classes[int(true[at])]))
    # Keyed labels belong to the embedded samples; what is drawn here on test images only shows the mark.
    answer = "" if key.target is None else test.classes[key.target]
    return Gallery(key.kind, answer, tuple(labels), tuple(pictures), untargeted=key.labels == "untargeted")


def _codebook(key: Key, test: Data, labels: Sequence[str]) -> Gallery:
    """Return one picture for each mark, all on the same image, with its secret class."""
    samples = marks_once(key, test)
    pictures = tuple(
        GalleryPicture(None, png_uri(image), test.classes[label])
        for image, label in zip(samples.images, samples.labels.tolist(), strict=True)
    )
    plain = None
    if key.kind != "unrelated":
        found = test.gather(samples.carriers[:1])
        uri = png_uri(found.images[0])
        plain = GalleryPicture(uri, uri, test.classes[int(found.labels[0])])
    return Gallery(key.kind, "", tuple(labels), pictures, plain=plain, codebook=True)


def _queries(samples: WatermarkSamples, classes: Sequence[str]) -> tuple[GalleryPicture, ...]:
    """Return some of a fingerprint's queries; what they were made from is in the owner's images."""
    true = samples.labels if samples.true is None else samples.true
    return tuple(
        GalleryPicture(None, png_uri(samples.images[at]), classes[int(true[at])]) for at in _varied(true).tolist()
    )


def _varied(labels: Tensor) -> Tensor:
    """Return rows whose labels differ, as far as there are such."""
    first = {label: row for row, label in reversed(list(enumerate(labels.tolist())))}
    rows = sorted(first.values())
    others = [row for row in range(len(labels)) if row not in set(rows)]
    return torch.tensor(sorted((rows + others)[:_PICTURES]))


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


def _plain_and_marked(key: Key, carriers: Data) -> "Image":
    """Return the sheet of a key with one mark: images as they are, and below them the same images with it."""
    samples = key.samples(carriers, purpose="verify", count=_PAIRS)
    plain = carriers.gather(samples.carriers).images.cpu()
    return _tiles(torch.cat([plain, samples.images]), [], len(samples))


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
            pen.text((left, top + height + 2), _fitted(pen, captions[number], wide - 2 * _GAP), fill="black")
    return whole


def _fitted(pen: "ImageDraw", text: str, room: int) -> str:
    """Shorten ``text`` until it fits; the default font knows Latin letters only."""
    plain = text.encode("latin-1", "replace").decode("latin-1")
    while plain and pen.textlength(plain) > room:
        plain = plain[:-1]
    return plain


def write_contact_sheet(key: Key, carriers: Data, path: str | Path) -> None:
    """Write the sheet as a PNG; that of a codebook, which shows every secret class, for its owner only (mode 0600)."""
    secret = key.labels == "codebook"
    picture = (codebook_tiles if secret else _plain_and_marked)(key, carriers)
    with replacing(path, mode=0o600 if secret else 0o644) as temporary:
        picture.save(temporary, format="PNG")


_LEVELS = 12
_LEFT, _ROW, _WIDTH = 22.0, 18.0, 286.0
_WRITTEN = 16  # classes up to which a cell has room for its count
_NAMED = 32  # classes up to which each has its name above its column
_LONGEST = 12
_LETTER = 5.4


@dataclass(frozen=True)
class Answers:
    """What a model answered to the marks of a codebook."""

    # for each mark and class, how many carriers of another class were answered with it
    table: tuple[tuple[int, ...], ...]
    drawn: tuple[int, ...]  # the secret class of each mark
    carriers: int  # images that each mark was asked on
    p_value: float | None  # of the verdict

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
    marks, count = len(answers.table), len(answers.table[0])
    named = classes if len(classes) == count else list(map(str, range(count)))
    names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in named]
    wide, longest = _WIDTH / count, max(map(len, names)) * _LETTER
    top = 16.0 if longest <= wide or count > _NAMED else longest + 8
    gap = 1.0 if wide > 6 else 0.25

    def boxes(cells: Iterable[tuple[int, int]]) -> str:
        side = f"{wide - 2 * gap:.1f}"
        return "".join(
            f"M{_LEFT + at * wide + gap:.1f} {top + row * _ROW + 1:g}h{side}v{_ROW - 2:g}h-{side}z" for row, at in cells
        )

    every = [(row, at) for row in range(marks) for at in range(count)]
    depths: dict[int, list[tuple[int, int]]] = {}
    for row, at in every:
        if answers.table[row][at]:
            depth = max(1, round(_LEVELS * answers.table[row][at] / answers.carriers))
            depths.setdefault(depth, []).append((row, at))
    shades = [(f"{depth / _LEVELS:.2f}", boxes(cells)) for depth, cells in sorted(depths.items())]
    secret = list(zip(enumerate(answers.drawn), answers.own, strict=True))
    solid, dashed = (boxes(cell for cell, own in secret if own is held) for held in (True, False))
    return drawn_by(
        "heat_map.svg.j2", answers=answers, caption=caption(answers), names=names, wide=wide, top=top,
        upright=longest <= wide, many=count > _NAMED, written=count <= _WRITTEN, shades=[("", boxes(every)), *shades],
        outlines=[(solid, ""), (dashed, "3 2")],
    )  # fmt: skip


def pictured(models: Sequence[ModelStages]) -> list[Mapping[str, Any]]:
    """Return what a page shows of each model that was asked a codebook, before and after each attack."""
    # Attacks stand in the same order under every model, so that columns compare.
    order = [None, *dict.fromkeys(stage.column for model in models for stage in model.after)]
    found: list[Mapping[str, Any]] = []
    for model in models:
        stages = [
            {
                "title": stage_title(stage.column or BEFORE), "owned": bool(stage.owned), "caption": caption(answers),
                "svg": heat_map(answers, _classes(stage.dataset)),
            }
            for stage in sorted(model.stages, key=lambda stage: order.index(stage.column))
            if (answers := answers_of(stage.verdict)) is not None
        ]  # fmt: skip
        if stages:
            found.append({"label": model.label, "stages": stages})
    return found


@cache
def _classes(data: str) -> Sequence[str]:
    """Return the names of the classes; none if the data set is not at hand, and numbers take their place."""
    try:
        return load(data)[1].classes
    except IndelibleError:
        return ()
