r"""The paper's tables as LaTeX: booktabs rules, groups of columns, the best in bold.

With measurements each row has three lines: measured with the sign of its verdict, reported, difference. Packages:
``booktabs``; ``amssymb`` for tick marks; ``xcolor`` for the colour of differences. The first line of each table names
those that it needs.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from indelible.report.palette import DIFFERENCES
from indelible.report.paper import words
from indelible.report.paper.grid import Column, Entry, Grid, Row

__all__ = ["as_latex", "latex_text"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "✓": r"$\checkmark$", "✗": r"$\times$", "–": "--",
    "…": r"\ldots{}",
    "−": "$-$", "±": r"$\pm$", "ε": r"$\varepsilon$", "×": r"$\times$", "<": "$<$", ">": "$>$",
}  # fmt: skip


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
    for number, group in enumerate(grid.groups):
        if number:
            lines.append(r"\midrule")
        for place, row in enumerate(group):
            shared = axes - 1 if grid.layout.grouped and place else 0
            labels = ["" if at < shared else latex_text(text) for at, text in enumerate(row.labels)]
            lines += _lines(grid, row, labels)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _packages(grid: Grid) -> list[str]:
    labels = "".join(label for row in grid.rows for label in row.labels)
    signs = {words.sign(*pair) for row in grid.rows for pair in zip(grid.columns, row.entries, strict=True)}
    return ["booktabs", *(["amssymb"] if "✓" in labels or signs - {""} else []), *(["xcolor"] if grid.compared else [])]


def _caption(grid: Grid) -> str:
    lines = "Lines: measured, reported, difference." if grid.compared else ""
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
    if not grid.measured:
        return [_line([*labels, *(_bold(words.reported(entry), entry.best_reported) for entry in row.entries)])]
    kinds: list[tuple[str, Callable[[Column, Entry], str]]] = [("", _measured)]
    if any(entry.reported is not None for entry in row.entries):
        kinds.append(("reported", lambda _column, entry: _bold(words.reported(entry), entry.best_reported)))
    if any(entry.difference is not None for entry in row.entries):
        kinds.append(("difference", _difference))
    made = []
    for name, write in kinds:
        heading = [*([""] * (len(labels) - 1)), rf"\quad {name}"] if name else list(labels)
        made.append(_line([*heading, *map(write, grid.columns, row.entries)]))
    return made


def _measured(column: Column, entry: Entry) -> str:
    own = _bold(words.measured(entry), entry.best_measured)
    own = rf"{own}{{\scriptsize$\,\pm\,${words.spread(entry)}}}" if words.spread(entry) else own
    sign = latex_text(words.sign(column, entry))
    return rf"{own}\,{{\scriptsize {sign}}}" if sign else own


def _difference(_column: Column, entry: Entry) -> str:
    text, step = latex_text(words.difference(entry)), words.step(entry)
    return rf"\textcolor[HTML]{{{DIFFERENCES[step].lstrip('#').upper()}}}{{{text}}}" if step else text


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{latex_text(text)}}}" if best else latex_text(text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
