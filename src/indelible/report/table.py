"""The before/after table as rows: the terminal, Markdown and HTML are three ways to print the same cells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.report.collect import Entry, Stage, collect
from indelible.report.format import ABSENT, p_value, percent

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = [
    "Cell",
    "Column",
    "Row",
    "Table",
    "before_after",
    "markdown_table",
    "markdown_text",
    "stage_title",
    "terminal_table",
    "verdict_word",
]

BEFORE = "Before attack"
_TITLES = {
    "ba": "BA %",
    "wsr": "WSR %",
    "wsr_embedded": "WSR % on embedded samples",
    "p_value": "p-value",
    "verdict": "Verdict",
}


_NARROW = {"wsr_embedded": "embedded %"}  # columns of a terminal are dear


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        group: The stage: "Before attack", or an attack's title.
        measure: ``"ba"``, ``"wsr"``, ``"wsr_embedded"``, ``"p_value"`` or ``"verdict"``.
    """

    group: str
    measure: str

    @property
    def title(self) -> str:
        """The heading."""
        return _TITLES[self.measure]


@dataclass(frozen=True)
class Cell:
    """One cell: its text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One model."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Columns and rows; every row has one cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> dict[str, int]:
        """The stages in order, with the number of columns of each."""
        counted: dict[str, int] = {}
        for column in self.columns:
            counted[column.group] = counted.get(column.group, 0) + 1
        return counted

    def empty(self, row: Row, group: str) -> bool:
        """Tell whether ``row`` has nothing to say on a stage."""
        pairs = zip(self.columns, row.cells, strict=True)
        return all(cell.text == ABSENT for column, cell in pairs if column.group == group)


def before_after(entries: Sequence[Entry]) -> Table:
    """Return the table of ``entries``: a row for each, a group of columns for each stage."""
    known = [entry.before for entry in entries if entry.before is not None]
    columns = [Column(BEFORE, measure) for measure in ("ba", "wsr")]
    if any(stage.wsr_embedded is not None for stage in known):  # a codebook is stamped anew in every pass
        columns.append(Column(BEFORE, "wsr_embedded"))
    # A WSR never stands without its verdict, and be it that there is none.
    if any(stage.verdict is not None or stage.wsr is not None for stage in known):
        columns += [Column(BEFORE, measure) for measure in ("p_value", "verdict")]
    for title in dict.fromkeys(stage.title for entry in entries for stage in entry.after):
        columns += [Column(title, measure) for measure in ("ba", "wsr", "p_value", "verdict")]
    best = _best(entries)
    rows = [Row(entry.label, tuple(_cell(entry, column, best) for column in columns)) for entry in entries]
    return Table(tuple(columns), tuple(rows))


def _best(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the highest WSR that remains after each attack, as printed: what looks equal counts as equal."""
    best: dict[str, float] = {}
    for entry in entries:
        for stage in entry.after:
            if entry.marked and stage.wsr is not None:
                best[stage.title] = max(best.get(stage.title, 0.0), stage.wsr)
    return {title: percent(rate) for title, rate in best.items()}


def _stage(entry: Entry, group: str) -> Stage | None:
    if group == BEFORE:
        return entry.before
    return next((stage for stage in entry.after if stage.title == group), None)


def _cell(entry: Entry, column: Column, best: Mapping[str, str]) -> Cell:
    stage = _stage(entry, column.group)
    if stage is None:
        return Cell(ABSENT)
    if column.measure == "p_value":
        return Cell(p_value(stage.p_value))
    if column.measure == "verdict":
        return Cell("no verdict" if stage.owned is None and stage.wsr is not None else verdict_word(stage.owned))
    rate: float | None = getattr(stage, column.measure)
    text = percent(rate)
    return Cell(text, best=column.measure == "wsr" and entry.marked and best.get(column.group) == text)


def verdict_word(owned: bool | None) -> str:
    """Return a verdict in one or two words."""
    return ABSENT if owned is None else "owned" if owned else "not shown"


def terminal_table(runs: Sequence[str | Path]) -> "RichTable":
    """Return the before/after table of run folders for a terminal.

    Args:
        runs: Folders of runs, or folders that contain runs.
    """
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = before_after(collect(runs))
    drawn = RichTable(
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption_justify="left",
        caption="Bold: highest WSR that remains after an attack.",
    )
    drawn.add_column("Method")
    drawn.add_column("")
    measures = list(dict.fromkeys(column.measure for column in table.columns))
    for measure in measures:
        drawn.add_column(_NARROW.get(measure, _TITLES[measure]), justify="left" if measure == "verdict" else "right")
    for row in table.rows:
        for number, group in enumerate(table.groups):
            pairs = zip(table.columns, row.cells, strict=True)
            cells = {column.measure: cell for column, cell in pairs if column.group == group}
            # A terminal has room for one stage a line, however many attacks there are.
            if number == 0 or not table.empty(row, group):
                shown = [_terminal(cells.get(measure, Cell(""))) for measure in measures]
                label = "" if number else escape(row.label)
                drawn.add_row(label, escape("before" if number == 0 else _lower(stage_title(group))), *shown)
    return drawn


def _terminal(cell: Cell) -> str:
    from rich.markup import escape

    return f"[bold]{escape(cell.text)}[/bold]" if cell.best else escape(cell.text)


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def stage_title(group: str) -> str:
    """Name a group of columns: "Before attack", "After FT"."""
    return group if group == BEFORE else f"After {group}"


def markdown_table(runs: Sequence[str | Path]) -> str:
    """Return the before/after table of run folders as Markdown.

    Args:
        runs: Folders of runs, or folders that contain runs.
    """
    table = before_after(collect(runs))
    headings = ["Method", *(f"{stage_title(column.group)}: {column.title}" for column in table.columns)]
    rules = ["---", *("---" if column.measure == "verdict" else "---:" for column in table.columns)]
    body = [
        [
            markdown_text(row.label),
            *(f"**{cell.text}**" if cell.best else markdown_text(cell.text) for cell in row.cells),
        ]
        for row in table.rows
    ]
    lines = [[markdown_text(heading) for heading in headings], rules, *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown_text(text: str) -> str:
    """Escape what Markdown would take for markup, tables and HTML."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))
