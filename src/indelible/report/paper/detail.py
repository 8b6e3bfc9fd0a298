"""What stands behind a cell, shown on demand: numbers by seed, curve, settings, the command to run it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indelible.report import format as written
from indelible.report.codebook import caption, heat_map
from indelible.report.paper import words
from indelible.report.paper.grid import Column, Entry, Grid, Row, rate
from indelible.report.paper.observations import Observation
from indelible.report.paper.spark import spark
from indelible.report.rerun import flattened
from indelible.report.table import verdict_word

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Detail", "details"]


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One cell in full.

    Attributes:
        id: Of its element on the page.
        title: Row and column in words.
        facts: Names and texts.
        seeds: For each run: seed, BA, WSR, verdict, p-value, time, images a second.
        curve: Inline SVG.
        answers: Marks x classes of the first run with a codebook, and its caption.
        settings: Of the first run, flattened.
        commands: What to type to run it again.
    """

    id: str
    title: str
    facts: Mapping[str, str]
    seeds: Sequence[Sequence[str]]
    curve: "Markup | None"
    answers: "tuple[Markup, str] | None"
    settings: Mapping[str, str]
    commands: Sequence[str]


def details(grid: Grid) -> list[list[Detail]]:
    """Return the details of a table, row by row."""
    return [
        [
            _detail(f"d-{grid.name}-{down}-{across}", row, column, entry, grid)
            for across, (column, entry) in enumerate(zip(grid.columns, row.entries, strict=True))
        ]
        for down, row in enumerate(grid.rows)
    ]


def _detail(name: str, row: Row, column: Column, entry: Entry, grid: Grid) -> Detail:
    own = [one for one in entry.observations if one.seed is not None] if column.condition is not None else []
    measured = entry.observations if entry.measured is not None else ()
    curves = (spark(one.curve) for one in own)
    return Detail(
        id=name,
        title=f"{_row_title(grid, row)}: {_column_title(column)}",
        facts=_facts(column, entry),
        seeds=[_seed(one) for one in own],
        curve=next((curve for curve in curves if curve is not None), None),
        answers=_answers(own) if column.measure == "wsr" else None,
        settings=dict(flattened(own[0].settings)) if own else {},
        commands=list(dict.fromkeys(one.command for one in (own or measured) if one.command)),
    )


def _answers(own: Sequence[Observation]) -> "tuple[Markup, str] | None":
    first = next((one for one in own if one.answers is not None), None)
    if first is None or first.answers is None:
        return None
    return heat_map(first.answers), f"Seed {first.seed}: {caption(first.answers)}"


def _row_title(grid: Grid, row: Row) -> str:
    pairs = zip(grid.layout.axes, row.labels, strict=True)
    # "Content, APP" speaks for itself; "2" or a tick needs the name of its axis.
    return ", ".join(label if label[:1].isalpha() else f"{axis.title} {label}" for axis, label in pairs)


def _column_title(column: Column) -> str:
    if column.condition is None:
        return f"{column.title} of {column.measure.upper()}"
    before = column.group == "Before"
    return f"{column.measure.upper()} before attack" if before else f"{column.measure.upper()} after {column.title}"


def _facts(column: Column, entry: Entry) -> dict[str, str]:
    facts: dict[str, str] = {}
    if entry.measured is not None:
        spread = words.spread(entry)
        facts["Measured"] = f"{words.measured(entry)} %" + (f" ± {spread}" if spread else "")
        facts["Seeds"] = str(entry.measured.seeds)
        facts |= {"Verdict": words.verdict(column, entry)} if words.sign(column, entry) else {}
        if entry.measured.partial is not None:
            facts["Attacks so far"] = str(entry.measured.partial)
    if entry.reported is not None:
        facts["Reported"] = f"{words.reported(entry)} %"
    if entry.difference is not None:
        facts["Difference"] = f"{words.difference(entry)} points"
    if entry.measured is None and column.condition is not None:
        other = "ba" if column.measure == "wsr" else "wsr"
        value = next((found for one in entry.observations if (found := getattr(one, other)) is not None), None)
        facts |= {} if value is None else {f"{other.upper()} in the same place": f"{rate(value)} %"}
    sources = dict.fromkeys(one.source for one in entry.observations if one.source)
    facts |= {"In the paper": "; ".join(sources)} if sources else {}
    return facts | ({"Note": entry.note} if entry.note else {})


def _seed(one: Observation) -> list[str]:
    return [
        str(one.seed), written.ABSENT if one.ba is None else rate(one.ba),
        written.ABSENT if one.wsr is None else rate(one.wsr), verdict_word(one.owned), written.p_value(one.p_value),
        written.ABSENT if one.seconds is None else written.duration(one.seconds),
        written.plain_number(one.images_per_second),
    ]  # fmt: skip
