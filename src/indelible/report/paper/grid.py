"""A layout filled with observations: means over seeds, summaries of rows, differences from the paper, the best.

| quantity | of | formula |
|---|---|---|
| mean, sd | the seeds of a cell | arithmetic mean; sample standard deviation (n - 1), from two seeds on |
| AvgDrop | each seed that has all attacks | rate before minus the mean rate after; then mean and sd over seeds |
| difference | a cell | measured mean minus reported |
| best | a column within its group | highest rate, lowest AvgDrop, as printed: what looks equal is equal |

While attacks are missing, a summary is taken over those that exist, is marked as such, and is not compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal

from indelible.report.paper.layouts import BEFORE, Condition, Layout, title_of
from indelible.report.paper.observations import Observation
from indelible.report.suite import PAPER_ATTACKS, average_drop

__all__ = ["Column", "Entry", "Grid", "Row", "Value", "fill", "rate"]

Measure = Literal["wsr", "ba"]
Key = tuple[Any, ...]
_SUMMARY_TITLES = {"avg_drop": "AvgDrop", "avg": "AVG"}
# Before, mean and printed summary are each rounded to 0.01 points: together they may be this far apart.
_ROUNDING = 1.5e-4 + 1e-9


def rate(value: float) -> str:
    """Write a rate in [0, 1] as the paper does: per cent, two decimals, without the sign."""
    return f"{100 * value:.2f}"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A mean over seeds.

    Attributes:
        mean: The mean, a fraction.
        sd: Sample standard deviation; None for a single seed.
        seeds: How many.
        partial: Over how many attacks a summary was taken when some are missing; None if none is.
    """

    mean: float
    sd: float | None = None
    seeds: int = 1
    partial: int | None = None

    @classmethod
    def of(cls, values: Sequence[float], partial: int | None = None) -> "Value | None":
        """Return mean and standard deviation; None for no values."""
        if not values:
            return None
        spread = stdev(values) if len(values) > 1 else None
        return cls(mean=fmean(values), sd=spread, seeds=len(values), partial=partial)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of numbers: its heading, under which group, and what it shows."""

    group: str
    title: str
    measure: Measure
    condition: Condition | None
    """None for the summary."""
    better: Literal["higher", "lower"] | None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A cell of a table: measured and reported, which of them are best, and the observations behind it."""

    measured: Value | None = None
    reported: float | None = None
    best_measured: bool = False
    best_reported: bool = False
    note: str = ""
    observations: tuple[Observation, ...] = ()

    @property
    def difference(self) -> float | None:
        """Measured minus reported; None when either is missing or the summary is not over the same attacks."""
        if self.measured is None or self.reported is None or self.measured.partial is not None:
            return None
        return self.measured.mean - self.reported

    @property
    def shown(self) -> float | None:
        """The number that stands first: measured if there is one."""
        return self.reported if self.measured is None else self.measured.mean


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: headings, coordinates, and an entry for each column."""

    labels: tuple[str, ...]
    key: Key
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A filled table.

    Attributes:
        name: Unique on a page.
        layout: Its description.
        measure: ``"wsr"`` for the main table, ``"ba"`` for the one beside it.
        title: Heading.
        columns: Of numbers.
        rows: In the paper's order.
        measured: Whether anything in it was measured.
        notes: What a reader must know.
    """

    name: str
    layout: Layout
    measure: Measure
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    measured: bool
    notes: tuple[str, ...]

    @property
    def groups(self) -> list[list[Row]]:
        """Rows that are compared with each other."""
        made: dict[Key, list[Row]] = {}
        for row in self.rows:
            made.setdefault(row.key[:-1] if self.layout.grouped else (), []).append(row)
        return list(made.values())

    @property
    def compared(self) -> bool:
        """Whether any cell is both measured and reported."""
        return any(entry.difference is not None for row in self.rows for entry in row.entries)


def fill(layout: Layout, reported: Sequence[Observation], measured: Sequence[Observation] = ()) -> list[Grid]:
    """Return the tables of a layout: WSR, and BA where there is any after an attack.

    Args:
        layout: Which table.
        reported: The paper's numbers.
        measured: Ours; with them, reported rows stand beside measured ones.
    """
    theirs, ours = _by_row(layout, reported), _by_row(layout, measured)
    keys = list(ours) if measured and not layout.unmeasured else list(dict.fromkeys([*theirs, *ours]))
    shown = [key for key in keys if key in ours or _printed_row(layout, theirs[key])]
    shown.sort(key=lambda key: [axis.rank(value) for axis, value in zip(layout.axes, key, strict=True)])
    grids = []
    for measure in ("wsr", "ba"):
        columns = _columns(layout, measure)
        rows = [_row(layout, columns, key, theirs.get(key, ()), ours.get(key, ())) for key in shown]
        grid = _grid(layout, measure, columns, rows, measured=bool(measured))
        if any(column.group == "After" for column in grid.columns):
            grids.append(grid)
    return grids


def _by_row(layout: Layout, observations: Sequence[Observation]) -> dict[Key, list[Observation]]:
    rows: dict[Key, list[Observation]] = {}
    for one in observations:
        if layout.admits(one):
            rows.setdefault(tuple(one.value(axis.field) for axis in layout.axes), []).append(one)
    return rows


def _printed_row(layout: Layout, observations: Sequence[Observation]) -> bool:
    return not layout.methods or any(one.method in layout.methods for one in observations)


def _columns(layout: Layout, measure: Measure) -> list[Column]:
    before: tuple[Measure, ...] = ("ba", "wsr") if measure == "wsr" else ("ba",)
    # That an attack leaves BA high is good for the thief: no number of that table is best but the first.
    better: Literal["higher"] | None = "higher" if measure == "wsr" else None
    columns = [
        Column(group="Before", title=name.upper(), measure=name, condition=BEFORE, better="higher") for name in before
    ]
    columns += [
        Column(group="After", title=condition.title, measure=measure, condition=condition, better=better)
        for condition in layout.conditions
    ]
    if layout.summary is not None:
        best: Literal["higher", "lower"] = "lower" if layout.summary == "avg_drop" else "higher"
        title = _SUMMARY_TITLES[layout.summary]
        columns.append(Column(group="", title=title, measure=measure, condition=None, better=better and best))
    return columns


def _row(
    layout: Layout, columns: Sequence[Column], key: Key, theirs: Sequence[Observation], ours: Sequence[Observation]
) -> Row:
    entries = []
    for column in columns:
        if column.condition is None:
            entries.append(_summary(layout, column.measure, theirs, ours))
            continue
        at = [one for one in ours if column.condition.holds(one)]
        said = [one for one in theirs if column.condition.holds(one)]
        values = [value for one in at if (value := getattr(one, column.measure)) is not None]
        entries.append(
            Entry(
                measured=Value.of(values),
                reported=next((value for one in said if (value := getattr(one, column.measure)) is not None), None),
                observations=tuple(at or said),
            )
        )
    return Row(labels=tuple(title_of(value) for value in key), key=key, entries=tuple(entries))


def _summary(layout: Layout, measure: Measure, theirs: Sequence[Observation], ours: Sequence[Observation]) -> Entry:
    counted = [one for one in layout.conditions if one.attack in PAPER_ATTACKS]
    sum_up = average_drop if layout.summary == "avg_drop" else _average
    seeds = dict.fromkeys(one.seed for one in ours)
    rows = [_rates([one for one in ours if one.seed == seed], measure, counted) for seed in seeds]
    whole = [row for row in rows if None not in row[1] and (row[0] is not None or layout.summary == "avg")]
    partial = None
    if not whole:
        # Over those attacks that every seed has, so that a mean of unlike things is never taken.
        common = [place for place in range(len(counted)) if all(row[1][place] is not None for row in rows)]
        whole = [(row[0], [row[1][place] for place in common]) for row in rows]
        partial = len(common)
    values = [value for row in whole if (value := sum_up(*row)) is not None]
    computed = sum_up(*_rates(theirs, measure, counted))
    printed = next((one.printed.get(f"{measure} {layout.summary}") for one in theirs if one.printed), None)
    note = ""
    if printed is not None and computed is not None and abs(printed - computed) > _ROUNDING:
        note = f"The paper prints {rate(printed)}; the mean over its own row gives {rate(computed)}."
    return Entry(
        measured=Value.of(values, partial), reported=computed if printed is None else printed, note=note,
        observations=tuple(ours or theirs),
    )  # fmt: skip


def _rates(
    observations: Sequence[Observation], measure: Measure, conditions: Sequence[Condition]
) -> tuple[float | None, list[float | None]]:
    def found(condition: Condition) -> float | None:
        rates = (getattr(one, measure) for one in observations if condition.holds(one))
        return next((value for value in rates if value is not None), None)

    return found(BEFORE), [found(condition) for condition in conditions]


def _average(before: float | None, after: Sequence[float | None]) -> float | None:  # noqa: ARG001 - like average_drop
    known = [value for value in after if value is not None]
    return fmean(known) if known else None


def _grid(layout: Layout, measure: Measure, columns: list[Column], rows: list[Row], *, measured: bool) -> Grid:
    """Leave out columns in which nothing stands, mark the best, gather the notes."""
    kept = [number for number in range(len(columns)) if any(row.entries[number].shown is not None for row in rows)]
    filled = [replace(row, entries=tuple(row.entries[number] for number in kept)) for row in rows]
    suffix, words = ("", "") if measure == "wsr" else ("-ba", ", benign accuracy (BA)")
    grid = Grid(
        name=layout.name + suffix, layout=layout, measure=measure, title=layout.title + words,
        columns=tuple(columns[number] for number in kept), rows=tuple(filled), measured=measured, notes=(),
    )  # fmt: skip
    marked = _best(grid) if layout.bold else grid
    return replace(marked, notes=tuple(_notes(marked)))


def _best(grid: Grid) -> Grid:
    rows = list(grid.rows)
    readers: Mapping[str, Callable[[Entry], float | None]] = {
        "best_measured": lambda entry: None if entry.measured is None or entry.measured.partial else entry.measured.mean,
        "best_reported": lambda entry: entry.reported,
    }
    for group in grid.groups:
        places = [rows.index(row) for row in group]
        for number, column in enumerate(grid.columns):
            for flag, read in readers.items():
                values = {place: value for place in places if (value := read(rows[place].entries[number])) is not None}
                if column.better is None or len(values) < 2:
                    continue
                best = (max if column.better == "higher" else min)(values.values())
                for place, value in values.items():
                    if rate(value) == rate(best):
                        entries = list(rows[place].entries)
                        entries[number] = replace(entries[number], **{flag: True})
                        rows[place] = replace(rows[place], entries=tuple(entries))
    return replace(grid, rows=tuple(rows))


def _notes(grid: Grid) -> list[str]:
    notes = [grid.layout.note] if grid.layout.note else []
    for row in grid.rows:
        notes += [f"{', '.join(row.labels)}: {entry.note}" for entry in row.entries if entry.note]
    counts = {entry.measured.seeds for row in grid.rows for entry in row.entries if entry.measured is not None}
    if counts:
        low, high = min(counts), max(counts)
        seeds = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
        spread = "; ± sample standard deviation" if high > 1 else ""
        notes.append(f"Measured over {seeds}{spread}.")
    partial = any(entry.measured and entry.measured.partial is not None for row in grid.rows for entry in row.entries)
    if partial:
        notes.append("… after a summary: not all attacks are done; it is over those that are, and is not compared.")
    return notes

