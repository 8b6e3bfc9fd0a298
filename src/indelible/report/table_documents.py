"""Filled tables as documents: Markdown, LaTeX, and one self-contained HTML page with the details of each cell.

Their templates say what stands in a cell. The HTML page loads nothing: its one script is in it, and the page's policy
admits that script by its digest and no other.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_text
from indelible.report.charts import draw, sparkline, table_charts
from indelible.report.drawing import can_draw
from indelible.report.mark_galleries import answers_of, caption, heat_map
from indelible.report.page_look import environment, filled_lines, text_environment
from indelible.report.table_grid import Grid

FORMATS = {"html": ".html", "markdown": ".md", "latex": ".tex"}
"""Format -> ending of its files."""
_NO_MARK = "unmarked"
"""What presets call training without a mark."""
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
    return text_environment().get_template("tables.tex.j2").render(grids=grids)


def as_html(grids: Sequence[Grid], *, title: str | None = None) -> str:
    """Return the tables as one HTML page."""
    from markupsafe import Markup

    script = Path(__file__).with_name("templates").joinpath("tables.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment().get_template("tables.html.j2").render(
        title=title, outcome=outcome_of_tables(grids), grids=grids, can_draw=can_draw(),
        table_charts=table_charts, draw=draw, sparkline=sparkline, answers_of=answers_of, heat_map=heat_map,
        caption=caption, script=Markup(script), digest=digest,  # noqa: S704 - our own script, which ships with the package
    )  # fmt: skip


def wins(grid: Grid, *, measured: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Count where APP is best among at least two: ``((cells won, of), (groups with the least AvgDrop, of))``.

    Equal numbers, as printed, are a win for both.
    """
    cells, drops = [0, 0], [0, 0]
    for group in grid.groups:
        for number, column in enumerate(grid.columns):
            counted = cells if column.group == "After" else drops if column.title == "AvgDrop" else None
            entries = {row.key[-1]: row.entries[number] for row in group}
            known = {key: entry for key, entry in entries.items() if entry.comparable(measured=measured) is not None}
            if counted is not None and "app" in known and len(known) > 1:
                counted[0] += known["app"].best_measured if measured else known["app"].best_reported
                counted[1] += 1
    return (cells[0], cells[1]), (drops[0], drops[1])


def outcome_of_tables(grids: Sequence[Grid]) -> str:
    """Return the sentences for the top of a page of tables."""
    tables = [_counts(grid) for grid in grids if grid.measure == "wsr"]
    measured = any(grid.measured for grid in grids)
    return " ".join(filled_lines("outcome_of_tables.txt.j2", tables=tables, measured=measured))


def _counts(grid: Grid) -> Mapping[str, Any]:
    """Count attack cells, and those, before attack too, whose verdict shows ownership for every seed; APP apart.

    Training without a mark is not counted: nothing attacks it, and nothing should be shown of it.
    """
    rows = [row for row in grid.rows if row.key[-1] != _NO_MARK]
    after = [
        (row, entry)
        for row in rows
        for column, entry in zip(grid.columns, row.entries, strict=True)
        if column.group == "After"
    ]
    judged = [(row.key[-1], entry.owned) for row in rows for entry in row.entries if entry.verdicts]
    return {
        "title": grid.title, "by_kind": grid.layout.axes[0].field == "kind",
        "done": sum(entry.measured is not None for _, entry in after),
        "total": sum(not row.quoted for row, _ in after),
        "judged": [owned for _, owned in judged], "app": [owned for method, owned in judged if method == "app"],
        "ours": wins(grid, measured=True), "theirs": wins(grid, measured=False),
    }  # fmt: skip
