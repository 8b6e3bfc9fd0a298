"""Tables on disk: one file for HTML, Markdown and LaTeX; one for each table for CSV."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_text
from indelible.report.paper.grid import Grid
from indelible.report.paper.latex import as_latex
from indelible.report.paper.markdown import as_markdown
from indelible.report.paper.page import as_html
from indelible.report.paper.sheets import as_csv

__all__ = ["FORMATS", "write_tables"]

FORMATS: Mapping[str, str] = {"html": ".html", "markdown": ".md", "latex": ".tex", "csv": ".csv"}
"""Format -> ending of its files."""
_WHOLE: Mapping[str, Callable[[Sequence[Grid]], str]] = {"markdown": as_markdown, "latex": as_latex}


def write_tables(
    grids: Sequence[Grid], out: str | Path, *, form: str = "html", title: str | None = None
) -> list[Path]:  # fmt: skip
    """Write tables, each file whole or not at all.

    Args:
        grids: Filled tables.
        out: The file to write. CSV holds one table a file: several are named after it, ``out-TABLE.csv``.
        form: A name of :data:`FORMATS`.
        title: Heading of the HTML page.

    Returns:
        The files that were written.
    """
    if form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS)
    if not grids:
        raise InputError("there is no table to write: the results hold nothing that fits one.")
    target = Path(out)
    if form == "csv":
        paths = [target if len(grids) == 1 else target.with_name(f"{target.stem}-{grid.name}.csv") for grid in grids]
        for path, grid in zip(paths, grids, strict=True):
            write_text(path, as_csv(grid))
        return paths
    write_text(target, as_html(grids, title=title) if form == "html" else _WHOLE[form](grids))
    return [target]
