"""The paper's tables as Markdown: a cell reads measured ± sd, the sign of its verdict, (reported, difference).

Without a measurement, it is the reported number alone.
"""

from collections.abc import Sequence

from indelible.report.paper import words
from indelible.report.paper.grid import Column, Entry, Grid
from indelible.report.table import markdown_text

__all__ = ["as_markdown"]


def as_markdown(grids: Sequence[Grid]) -> str:
    """Return the tables as one Markdown document."""
    return "\n".join(_table(grid) for grid in grids)


def _table(grid: Grid) -> str:
    headings = [*(axis.title for axis in grid.layout.axes), *map(words.column_title, grid.columns)]
    lines = [
        [markdown_text(heading) for heading in headings],
        ["---"] * len(grid.layout.axes) + ["---:"] * len(grid.columns),
    ]
    for group in grid.groups:
        for number, row in enumerate(group):
            # As in print, what a whole group shares is written once.
            shared = len(row.labels) - 1 if grid.layout.grouped and number else 0
            labels = ["" if place < shared else markdown_text(text) for place, text in enumerate(row.labels)]
            lines.append(
                [
                    *labels,
                    *(
                        _cell(column, entry, grid.measured)
                        for column, entry in zip(grid.columns, row.entries, strict=True)
                    ),
                ]
            )
    legend = ([words.BESIDE] if grid.measured and grid.reported else []) + list(grid.notes)
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    notes = "".join(f"\n{markdown_text(note)}\n" for note in ["In per cent. " + " ".join(legend)])
    return f"### {markdown_text(grid.title)}\n\n{markdown_text(grid.layout.caption)}\n\n{body}{notes}"


def _cell(column: Column, entry: Entry, beside_measured: bool) -> str:
    said = _bold(words.reported(entry), entry.best_reported)
    if not beside_measured:
        return said
    own = words.measured(entry) + (f" ± {words.spread(entry)}" if words.spread(entry) else "")
    own = f"{_bold(own, entry.best_measured)} {words.sign(column, entry)}".strip()
    if entry.reported is None:
        return own
    beside = said if entry.difference is None else f"{said}, {words.difference(entry)}"
    return f"{own} ({beside})"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text
