"""The paper's tables as one self-contained HTML page: sortable, with what stands behind each cell, in light and dark.

The page loads nothing. Its one script is in it, and the page's policy admits that script by its digest and no other.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from indelible.report.charts import can_draw, drawn
from indelible.report.environment import environment
from indelible.report.palette import DARK, LIGHT
from indelible.report.paper import words
from indelible.report.paper.detail import details
from indelible.report.paper.figures import figures
from indelible.report.paper.grid import Grid
from indelible.report.paper.outcome import outcome

__all__ = ["TITLE_MEASURED", "TITLE_REPORTED", "as_html"]

TITLE_REPORTED = "The paper's tables"
TITLE_MEASURED = "Measured beside reported"
TITLE_ONLY_MEASURED = "Measured"


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
        outcome=outcome(grids), tables=[_table(number, grid) for number, grid in enumerate(grids)],
        compared=any(grid.compared for grid in grids), measured=any(grid.measured for grid in grids),
        reported=any(grid.reported for grid in grids), charts=can_draw(), words=words, light=LIGHT, dark=DARK,
        script=Markup(script), digest=digest,  # noqa: S704 - our own script, which ships with the package
    )  # fmt: skip


def _heading(grids: Sequence[Grid]) -> str:
    if not any(grid.measured for grid in grids):
        return TITLE_REPORTED
    if any(grid.reported for grid in grids):
        return TITLE_MEASURED
    titles = dict.fromkeys(grid.layout.title for grid in grids)
    return next(iter(titles)) if len(titles) == 1 else TITLE_ONLY_MEASURED


def _table(number: int, grid: Grid) -> Mapping[str, Any]:
    panel = figures(grid) if can_draw() else None
    behind = dict(zip([row.key for row in grid.rows], details(grid), strict=True))
    return {
        "grid": grid,
        "behind": behind,
        "shared": len(grid.layout.axes) - 1 if grid.layout.grouped else 0,
        "drawn": drawn([panel], f"f{number}-") if panel is not None else [],
    }
