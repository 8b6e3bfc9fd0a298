r"""Filled tables as documents: Markdown, LaTeX, and one HTML page.

| form | a measured cell |
|---|---|
| Markdown | measured ± sd, verdict, (reported, difference) |
| LaTeX | a line each for measured ± sd with the sign of its verdict, largest p-value, reported, difference |

Of several seeds the verdict says how many are owned, and the largest p-value. LaTeX packages: ``booktabs``; ``amssymb``
for tick marks; ``xcolor`` for the colour of differences; the first line of each table names those that it needs.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_text
from indelible.report.format import markdown_text, rate
from indelible.report.page_look import DIFFERENCES
from indelible.report.table_grid import Entry, Grid, Row
from indelible.report.table_page import as_html

FORMATS = {"html": ".html", "markdown": ".md", "latex": ".tex"}
"""Format -> ending of its files."""
BESIDE = "Measured ± standard deviation (reported, difference)."
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "✓": r"$\checkmark$", "✗": r"$\times$", "–": "--",
    "…": r"\ldots{}",
    "−": "$-$", "≤": r"$\le$", "±": r"$\pm$", "ε": r"$\varepsilon$", "×": r"$\times$", "<": "$<$", ">": "$>$",
}  # fmt: skip


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
    return "\n".join(_markdown(grid) for grid in grids)


def _markdown(grid: Grid) -> str:
    headings = [*(axis.title for axis in grid.layout.axes), *(column.heading for column in grid.columns)]
    lines = [
        [markdown_text(heading) for heading in headings],
        ["---"] * len(grid.layout.axes) + ["---:"] * len(grid.columns),
    ]
    for row, labels in grid.labelled():
        cells = [_markdown_cell(entry, beside_measured=grid.measured) for entry in row.entries]
        lines.append([*map(markdown_text, labels), *cells])
    legend = ([BESIDE] if grid.measured and grid.reported else []) + list(grid.notes)
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    notes = markdown_text("In per cent. " + " ".join(legend))
    return f"### {markdown_text(grid.title)}\n\n{markdown_text(grid.layout.caption)}\n\n{body}\n{notes}\n"


def _markdown_cell(entry: Entry, *, beside_measured: bool) -> str:
    said = f"**{rate(entry.reported)}**" if entry.best_reported else rate(entry.reported)
    if not beside_measured:
        return said
    own = entry.measured_text + (f" ± {entry.spread_text}" if entry.spread_text else "")
    own = f"**{own}**" if entry.best_measured else own
    own = f"{own} {entry.sign}".strip() + (f", {markdown_text(entry.worst_p)}" if entry.worst_p else "")
    if entry.reported is None:
        return own
    return f"{own} ({said if entry.difference is None else f'{said}, {entry.difference_text}'})"


def latex_text(text: str) -> str:
    """Escape what LaTeX would take for a command, and write symbols as commands."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def as_latex(grids: Sequence[Grid]) -> str:
    """Return the tables as LaTeX, each a floating ``table*``."""
    return "\n".join(_table(grid) for grid in grids)


def _table(grid: Grid) -> str:
    axes, numbers = len(grid.layout.axes), len(grid.columns)
    lines = [
        f"% Needs: {', '.join(_packages(grid))}.",
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{latex_text(_caption(grid))}}}",
        rf"\label{{tab:{grid.name}}}",
        rf"\begin{{tabular}}{{{'l' * axes}{'r' * numbers}}}",
        r"\toprule",
        *_heading(grid),
        r"\midrule",
    ]
    for number, (row, labels) in enumerate(grid.labelled()):
        if number and any(row is group[0] for group in grid.groups):
            lines.append(r"\midrule")
        lines += _lines(grid, row, [latex_text(text) for text in labels])
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


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


def _heading(grid: Grid) -> list[str]:
    axes = len(grid.layout.axes)
    above, rules, place = [""] * axes, [], axes + 1
    for title, members in groupby(grid.columns, key=lambda column: column.group):
        width = len(list(members))
        above.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(title)}}}" if title else "")
        if title:
            rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    titles = [*(axis.title for axis in grid.layout.axes), *(column.title for column in grid.columns)]
    return [_line(above), " ".join(rules), _line([latex_text(title) for title in titles])]


def _lines(grid: Grid, row: Row, labels: Sequence[str]) -> list[str]:
    kinds: list[tuple[str, Callable[[Entry], str]]] = [("", _measured)]
    if not grid.measured:
        kinds = [("", _reported)]
    elif any(entry.reported is not None for entry in row.entries):
        kinds.append(("reported", _reported))
    if any(entry.worst_p for entry in row.entries):
        kinds.insert(1, ("largest $p$", lambda entry: latex_text(entry.worst_p.removeprefix("p "))))
    if any(entry.difference is not None for entry in row.entries):
        kinds.append(("difference", _difference))
    made = []
    for name, write in kinds:
        heading = [*([""] * (len(labels) - 1)), rf"\quad {name}"] if name else list(labels)
        made.append(_line([*heading, *map(write, row.entries)]))
    return made


def _reported(entry: Entry) -> str:
    return _bold(rate(entry.reported), entry.best_reported)


def _measured(entry: Entry) -> str:
    own = _bold(entry.measured_text, entry.best_measured)
    own = rf"{own}{{\scriptsize$\,\pm\,${entry.spread_text}}}" if entry.spread_text else own
    return rf"{own}\,{{\scriptsize {latex_text(entry.sign)}}}" if entry.sign else own


def _difference(entry: Entry) -> str:
    text, step = latex_text(entry.difference_text), entry.step
    return rf"\textcolor[HTML]{{{DIFFERENCES[step].lstrip('#').upper()}}}{{{text}}}" if step else text


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{latex_text(text)}}}" if best else latex_text(text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
