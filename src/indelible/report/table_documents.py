"""Filled tables as documents: Markdown, LaTeX, and one self-contained HTML page with the details of each cell.

| form | a measured cell |
|---|---|
| Markdown | measured ± sd, verdict, (reported, difference) |
| LaTeX | a line each for measured ± sd with the sign of its verdict, largest p-value, reported, difference |
| HTML | as in Markdown; behind it the numbers by seed, curve, settings and the command to run it again |

Of several seeds the verdict says how many are owned, and the largest p-value. The HTML page loads nothing: its one
script is in it, and the page's policy admits that script by its digest and no other.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_text
from indelible.bench.measurement import Measurement
from indelible.report import format as written
from indelible.report.charts import drawn, sparkline, table_charts
from indelible.report.drawing import can_draw
from indelible.report.mark_galleries import answers_of, caption, heat_map
from indelible.report.outcome import outcome_of_tables
from indelible.report.page_look import environment, flattened, text_environment
from indelible.report.table_grid import Column, Entry, Grid, Row

if TYPE_CHECKING:
    from markupsafe import Markup

FORMATS = {"html": ".html", "markdown": ".md", "latex": ".tex"}
"""Format -> ending of its files."""
BESIDE = "Measured ± standard deviation (reported, difference)."


def write_tables(grids: Sequence[Grid], out: str | Path, *, form: str = "html", title: str | None = None) -> Path:
    """Write tables into one file, whole or not at all.

    Args:
        grids: Filled tables.
        out: The file to write.
        form: A name of :data:`FORMATS`.
        title: Heading of the HTML page.

    Returns:
        The file.
    """
    if form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS)
    if not grids:
        raise InputError("there is no table to write: the results hold nothing that fits one.")
    if form == "html":
        text = as_html(grids, title=title)
    else:
        text = as_markdown(grids) if form == "markdown" else as_latex(grids)
    write_text(out, text)
    return Path(out)


def as_markdown(grids: Sequence[Grid]) -> str:
    """Return the tables as one Markdown document."""
    return text_environment().get_template("tables.md.j2").render(grids=grids, beside=BESIDE)


def as_latex(grids: Sequence[Grid]) -> str:
    """Return the tables as LaTeX, each a floating ``table*``; its first line names the packages that it needs."""
    pages = text_environment()
    return pages.get_template("tables.tex.j2").render(grids=grids, packages=_packages, caption=_caption)


def _packages(grid: Grid) -> list[str]:
    signs = "".join(label for row in grid.rows for label in row.labels) + "".join(entry.sign for entry in grid.entries)
    ticks = "✓" in signs or "✗" in signs
    return ["booktabs", *(["amssymb"] if ticks else []), *(["xcolor"] if grid.compared else [])]


def _caption(grid: Grid) -> str:
    worst = "largest p-value of the seeds, " if any(entry.worst_p for entry in grid.entries) else ""
    lines = f"Lines: measured, {worst}reported, difference." if grid.compared else ""
    # The caption of the table of BA says which quantity it is; that of WSR is the paper's own.
    what = "BA after attack." if grid.measure == "ba" else "BA and WSR before, WSR after attack."
    return " ".join(part for part in (grid.layout.caption, what, "In per cent.", lines, *grid.notes) if part)


def as_html(grids: Sequence[Grid], *, title: str | None = None) -> str:
    """Return the tables as one HTML page."""
    from markupsafe import Markup

    pages = environment()
    if pages.loader is None:
        raise RuntimeError("templates come with the package")
    script = pages.loader.get_source(pages, "tables.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return pages.get_template("tables.html.j2").render(
        title=title or _heading(grids),
        outcome=outcome_of_tables(grids), tables=[_table(number, grid) for number, grid in enumerate(grids)],
        compared=any(grid.compared for grid in grids), measured=any(grid.measured for grid in grids),
        reported=any(grid.reported for grid in grids), charts=can_draw(),
        script=Markup(script), digest=digest,  # noqa: S704 - our own script, which ships with the package
    )  # fmt: skip


def _heading(grids: Sequence[Grid]) -> str:
    if not any(grid.measured for grid in grids):
        return "The paper's tables"
    if any(grid.reported for grid in grids):
        return "Measured beside reported"
    titles = dict.fromkeys(grid.layout.title for grid in grids)
    return next(iter(titles)) if len(titles) == 1 else "Measured"


def _table(number: int, grid: Grid) -> Mapping[str, Any]:
    panel = table_charts(grid) if can_draw() else None
    behind = dict(zip([row.key for row in grid.rows], details(grid), strict=True))
    return {"grid": grid, "behind": behind, "drawn": [] if panel is None else drawn([panel], f"f{number}-")}


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One cell in full, as texts: ``seeds`` for each run; curve, answers to a codebook and settings of the first."""

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
    own = [one for one in entry.measurements if one.seed is not None] if column.condition is not None else []
    measured = entry.measurements if entry.measured is not None else ()
    curves = (sparkline(one.curve) for one in own)
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


def _answers(own: Sequence[Measurement]) -> "tuple[Markup, str] | None":
    for one in own:
        answers = answers_of(one.verdict)
        if answers is not None:
            return heat_map(answers), f"Seed {one.seed}: {caption(answers)}"
    return None


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
        spread = entry.spread_text
        facts["Measured"] = f"{entry.measured_text} %" + (f" ± {spread}" if spread else "")
        facts["Seeds"] = str(entry.measured.seeds)
        facts |= {"Verdict": entry.verdict} if entry.sign else {}
        if entry.measured.partial is not None:
            facts["Attacks so far"] = str(entry.measured.partial)
    if entry.reported is not None:
        facts["Reported"] = f"{written.rate(entry.reported)} %"
    if entry.difference is not None:
        facts["Difference"] = f"{entry.difference_text} points"
    if entry.measured is None and column.condition is not None:
        other = "ba" if column.measure == "wsr" else "wsr"
        value = next((found for one in entry.measurements if (found := getattr(one, other)) is not None), None)
        facts |= {} if value is None else {f"{other.upper()} in the same place": f"{written.rate(value)} %"}
    sources = dict.fromkeys(one.place for one in entry.measurements if one.place)
    facts |= {"In the paper": "; ".join(sources)} if sources else {}
    return facts | ({"Note": entry.note} if entry.note else {})


def _seed(one: Measurement) -> list[str]:
    return [
        str(one.seed), written.rate(one.ba), written.rate(one.wsr), written.verdict_word(one.owned),
        written.p_value(one.p_value),
        written.ABSENT if one.seconds is None else written.duration(one.seconds),
        written.plain_number(one.images_per_second),
    ]  # fmt: skip
