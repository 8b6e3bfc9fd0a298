"""The verdict of a codebook as a picture: marks x classes, how often each mark was answered with each class.

Drawn by hand as inline SVG, so that a page can hold many and needs no matplotlib. One hue that deepens with the count
reads under every kind of colour vision and in grey; the count is written too. The secret class of a mark is outlined:
solid where it is on top, dashed where it is not. Colours are the page's variables and follow it into dark.

The picture tells which mark has which class. It belongs to the key, and a copy that leaves the house goes without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from indelible.base.errors import IndelibleError
from indelible.data.catalog import load
from indelible.report.collect import Entry
from indelible.report.format import p_value
from indelible.report.table import stage_title
from indelible.verify.statistics import codebook_scores, held_marks

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Answers", "Pictured", "Seen", "answers_of", "caption", "heat_map", "pictured"]

_LEVELS = 12
_LEFT, _ROW, _WIDTH = 22.0, 18.0, 286.0
_WRITTEN = 16  # classes up to which a cell has room for its count
_NAMED = 32  # classes up to which each has its name above its column
_LONGEST = 12
_LETTER = 5.4


@dataclass(frozen=True)
class Answers:
    """What a model answered to the marks of a codebook.

    Attributes:
        table: For each mark and class, how many carriers of another class were answered with it.
        drawn: The secret class of each mark.
        carriers: Images that each mark was asked on.
        p_value: Of the verdict.
    """

    table: tuple[tuple[int, ...], ...]
    drawn: tuple[int, ...]
    carriers: int
    p_value: float | None

    @property
    def own(self) -> tuple[bool, ...]:
        """Whether each mark has its own class on top: more answers over the average of all marks than any other."""
        scores, drawn = codebook_scores(np.array(self.table)), np.array(self.drawn)
        return tuple(bool(held_marks(scores[at : at + 1], drawn[at : at + 1])) for at in range(len(drawn)))


@dataclass(frozen=True)
class Seen:
    """A model at one moment: when, whether it is owned, the caption and the picture."""

    title: str
    owned: bool
    caption: str
    svg: "Markup"


@dataclass(frozen=True)
class Pictured:
    """A model and its pictures, before and after each attack."""

    label: str
    stages: tuple[Seen, ...]


def answers_of(verdict: Any) -> Answers | None:
    """Read the answers from a verdict, or from what a record measured; None without those of a codebook."""
    if not isinstance(verdict, Mapping):
        return None
    table: Any = verdict.get("table")
    drawn: Any = verdict.get("drawn")
    counts: Any = verdict.get("counts")
    if not _is_table(table) or not _is_row(drawn) or len(drawn) != len(table) or not table:
        return None
    if len({len(row) for row in table}) > 1 or not all(0 <= number < len(table[0]) for number in drawn):
        return None
    carriers = counts.get("carriers") if isinstance(counts, Mapping) else None
    most = max(max(row) for row in table)
    p = verdict.get("p_value")
    return Answers(
        tuple(tuple(row) for row in table), tuple(drawn), max(int(carriers or 0), most),
        float(p) if isinstance(p, int | float) else None,
    )  # fmt: skip


def _is_row(row: Any) -> bool:
    return isinstance(row, list | tuple) and all(isinstance(one, int) and one >= 0 for one in row)


def _is_table(table: Any) -> bool:
    return isinstance(table, list | tuple) and all(_is_row(row) and row for row in table)


def caption(answers: Answers) -> str:
    """Say in a sentence what the picture shows and how likely that is by chance."""
    said = f"{sum(answers.own)} of {len(answers.drawn)} marks are answered with their secret class; "
    p = answers.p_value
    if p is None:
        return f"{said}no p-value was kept."
    if p >= 0.5:
        return f"{said}a model that never saw the key does as well at least every second time."
    return f"{said}a model that never saw the key does as well with probability at most {p_value(p)}."


def heat_map(answers: Answers, classes: Sequence[str] = ()) -> "Markup":
    """Return the picture as ``<svg>``.

    Args:
        answers: What to show.
        classes: Names of the classes; without, their numbers stand above the columns.
    """
    from markupsafe import Markup, escape

    marks, count = len(answers.table), len(answers.table[0])
    names = [_short(classes[at]) if len(classes) == count else str(at) for at in range(count)]
    wide = _WIDTH / count
    upright = max(map(len, names)) * _LETTER <= wide
    top = 16.0 if upright or count > _NAMED else max(map(len, names)) * _LETTER + 8
    height = top + marks * _ROW + 3
    parts = [
        (f'<svg class="heat" role="img" aria-label="{escape(_alt(answers))}" '
        f'viewBox="0 0 {_LEFT + _WIDTH + 2:g} {height:g}">'),
        f'<g class="axis">{_headings([str(escape(name)) for name in names], wide, top, upright=upright)}',
        "".join(f'<text x="{_LEFT - 5:g}" y="{_middle(top, at)}" text-anchor="end">{at + 1}</text>'
                for at in range(marks)),
        (f'</g><path d="{"".join(_box(row, at, wide, top) for row in range(marks) for at in range(count))}" '
        'fill="var(--raised)"/>'),
        *_shades(answers, wide, top),
    ]  # fmt: skip
    if count <= _WRITTEN:
        parts += [
            f'<text x="{_LEFT + (at + 0.5) * wide:.1f}" y="{_middle(top, row)}" text-anchor="middle">{number}</text>'
            for row, numbers in enumerate(answers.table)
            for at, number in enumerate(numbers)
            if number
        ]
    for held, dash in ((True, ""), (False, ' stroke-dasharray="3 2"')):
        boxes = "".join(
            _box(row, at, wide, top)
            for row, (at, own) in enumerate(zip(answers.drawn, answers.own, strict=True))
            if own is held
        )
        if boxes:
            parts.append(f'<path d="{boxes}" fill="none" stroke="var(--ink)" stroke-width="1.6"{dash}/>')
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and texts that were escaped above


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _headings(names: Sequence[str], wide: float, top: float, *, upright: bool) -> str:
    """Write the classes above their columns; of many, the first and the last."""
    y = top - 5
    if len(names) > _NAMED:
        last = f'<text x="{_LEFT + _WIDTH:g}" y="{y:g}" text-anchor="end">class {len(names) - 1}</text>'
        return f'<text x="{_LEFT:g}" y="{y:g}">class 0</text>{last}'
    made = []
    for at, name in enumerate(names):
        x = _LEFT + (at + 0.5) * wide
        turned = f'transform="translate({x + 3:.1f} {y:g}) rotate(-90)"'
        level = f'x="{x:.1f}" y="{y:g}" text-anchor="middle"'
        made.append(f"<text {level if upright else turned}>{name}</text>")
    return "".join(made)


def _box(row: int, at: int, wide: float, top: float) -> str:
    gap = 1.0 if wide > 6 else 0.25
    side = f"{wide - 2 * gap:.1f}"
    return f"M{_LEFT + at * wide + gap:.1f} {top + row * _ROW + 1:g}h{side}v{_ROW - 2:g}h-{side}z"


def _middle(top: float, row: int) -> str:
    return f"{top + row * _ROW + _ROW / 2 + 3.4:.1f}"


def _shades(answers: Answers, wide: float, top: float) -> list[str]:
    """Return one path for each depth of the colour; a page of many pictures stays small."""
    levels: dict[int, list[str]] = {}
    for row, numbers in enumerate(answers.table):
        for at, number in enumerate(numbers):
            if number:
                level = max(1, round(_LEVELS * number / answers.carriers))
                levels.setdefault(level, []).append(_box(row, at, wide, top))
    return [
        f'<path d="{"".join(boxes)}" fill="var(--hi3)" fill-opacity="{level / _LEVELS:.2f}"/>'
        for level, boxes in sorted(levels.items())
    ]


def _alt(answers: Answers) -> str:
    return f"Answers by mark and class, {answers.carriers} images of each mark. {caption(answers)}"


def pictured(entries: Sequence[Entry]) -> list[Pictured]:
    """Return the pictures of all models that were asked a codebook, before and after each attack."""
    known: dict[str, Sequence[str]] = {}
    # Attacks stand in the same order under every model, so that columns compare.
    order = list(dict.fromkeys(stage.title for entry in entries for stage in entry.after))
    found = []
    for entry in entries:
        stages = []
        after = sorted(entry.after, key=lambda stage: order.index(stage.title))
        for stage in [*([entry.before] if entry.before else []), *after]:
            answers = answers_of(stage.verdict)
            if answers is not None:
                data = stage.run.data
                known[data] = known[data] if data in known else _classes(data)
                title = stage_title(stage.title)
                stages.append(Seen(title, bool(stage.owned), caption(answers), heat_map(answers, known[data])))
        if stages:
            found.append(Pictured(entry.label, tuple(stages)))
    return found


def _classes(data: str) -> Sequence[str]:
    """Return the names of the classes; none if the data set is not at hand, and numbers take their place."""
    try:
        return load(data)[1].classes
    except IndelibleError:
        return ()
