"""The verdict of a codebook as a picture: marks x classes, how often each mark was answered with each class.

A template draws it as inline SVG, so that a page can hold many and needs no matplotlib. One hue that deepens with the
count reads under every kind of colour vision and in gray; the count is written too. The secret class of a mark is
outlined: solid where it is on top, dashed where it is not. Colours are the page's variables and follow it into dark.

The picture tells which mark has which class. It belongs to the key, and a copy for others goes without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from indelible.base.errors import IndelibleError
from indelible.data.catalog import load
from indelible.report.format import BEFORE, p_value, stage_title
from indelible.report.model_stages import ModelStages
from indelible.report.page_look import drawn_by
from indelible.verification.statistics.codebook import codebook_scores, held_marks

if TYPE_CHECKING:
    from markupsafe import Markup

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
