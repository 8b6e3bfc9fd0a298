"""A layout filled with measurements: means over seeds, summaries of rows, differences from the paper, the best.

| quantity | of | formula |
|---|---|---|
| mean, sd | the seeds of a cell | arithmetic mean; sample standard deviation (n - 1), from two seeds on |
| AvgDrop | each seed that has all attacks | rate before minus the mean rate after; then mean and sd over seeds |
| difference | a cell | measured mean minus reported |
| best | a column within its group | highest rate, lowest AvgDrop, as printed: what looks equal is equal |

A preset of one's own is summed up over its own attacks. While attacks are missing, a summary is taken over those that
exist, is marked as such, and is not compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import Measurement, Results
from indelible.bench.reported import published
from indelible.report.format import SIGNS, join_words, rate
from indelible.report.model_stages import average_drop
from indelible.report.table_grid import Column, Entry, Grid, Measure, Row, RowKey, Value
from indelible.report.table_layouts import BEFORE, MAIN, TABLES, Condition, Layout, layout_for, title_of

ALL = "all"

_SUMMARY_TITLES = {"avg_drop": "AvgDrop", "avg": "AVG"}
# Before, mean and printed summary are each rounded to 0.01 points: together they may be this far apart.
_ROUNDING = 1.5e-4 + 1e-9


def _reported(layout: Layout) -> list[Measurement]:
    return [one for section in layout.sections for one in published(section)]


def reported_tables(names: Sequence[str] = MAIN) -> list[Grid]:
    """Return the paper's tables from its own numbers; nothing is run.

    Args:
        names: Names of layouts; ``"all"`` for every one that the paper prints numbers for.
    """
    known = {layout.name: layout for layout in TABLES.entries()}
    wanted = list(dict.fromkeys(names or MAIN))
    if ALL in wanted:
        wanted = [name for name, layout in known.items() if layout.sections]
    grids = []
    for name in wanted:
        if name not in known:
            raise UnknownNameError("table", name, [*known, ALL])
        if not known[name].sections:
            raise InputError(
                f"the paper prints no numbers for {name!r}. Measure them: "
                f"indelible bench run {' or '.join(known[name].presets)}"
            )
        grids += fill(known[name], _reported(known[name]))
    return grids


def measured_tables(results: Sequence[Results]) -> list[Grid]:
    """Return the tables of some presets' results, with the paper's numbers beside them where there are any."""
    grids = []
    for one in results:
        if not one.measurements:
            raise InputError(
                f"the results of {one.preset!r} hold no cell yet. Run it: indelible bench run {one.preset}"
            )
        layout = layout_for(one)
        grids += fill(layout, _reported(layout), one.measurements)
    return grids


def fill(layout: Layout, reported: Sequence[Measurement], measured: Sequence[Measurement] = ()) -> list[Grid]:
    """Return the tables of a layout: WSR, and BA where there is any after an attack, with the paper's rows."""
    theirs, ours = _by_row(layout, reported), _by_row(layout, measured)
    keys = list(ours) if measured and not layout.unmeasured else list(dict.fromkeys([*theirs, *ours]))
    shown = [key for key in keys if key in ours or _printed_row(layout, theirs[key])]
    shown.sort(key=lambda key: [axis.rank(value) for axis, value in zip(layout.axes, key, strict=True)])
    grids = []
    for measure in ("wsr", "ba"):
        columns = _columns(layout, measure)
        rows = [_row(layout, columns, key, theirs.get(key, ()), ours.get(key, ())) for key in shown]
        rows = [row for row in rows if not row.quoted or any(entry.reported is not None for entry in row.entries)]
        grid = _grid(layout, measure, columns, rows, extra=_networks(ours, theirs))
        if any(column.group == "After" for column in grid.columns):
            grids.append(grid)
    return grids


def _networks(
    ours: Mapping[RowKey, Sequence[Measurement]], theirs: Mapping[RowKey, Sequence[Measurement]]
) -> str | None:
    """Say on which networks was measured, if that is not what the paper took; None without measurements."""
    measured = sorted({title_of(one.architecture) for row in ours.values() for one in row})
    reported = sorted({title_of(one.architecture) for key in ours for one in theirs.get(key, ())})
    if not measured:
        return None
    if not reported or measured == reported:
        return ""
    return f"Measured on {join_words(measured)}; the paper's numbers are of {join_words(reported)}."


def _by_row(layout: Layout, measurements: Sequence[Measurement]) -> dict[RowKey, list[Measurement]]:
    rows: dict[RowKey, list[Measurement]] = {}
    for one in measurements:
        if layout.admits(one):
            rows.setdefault(tuple(one.value(axis.field) for axis in layout.axes), []).append(one)
    return rows


def _printed_row(layout: Layout, measurements: Sequence[Measurement]) -> bool:
    return not layout.methods or any(one.method in layout.methods for one in measurements)


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
    layout: Layout, columns: Sequence[Column], key: RowKey, theirs: Sequence[Measurement], ours: Sequence[Measurement]
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
                measurements=tuple(at or said),
                judged=tuple(one for one in at if one.wsr is not None) if column.measure == "wsr" else (),
            )
        )
    return Row(labels=tuple(title_of(value) for value in key), key=key, entries=tuple(entries))


def _summary(layout: Layout, measure: Measure, theirs: Sequence[Measurement], ours: Sequence[Measurement]) -> Entry:
    counted = layout.summed
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
    before, after = _rates(theirs, measure, counted)
    # The same attacks on both sides, or no comparison: the paper's own summary is over its six.
    computed = sum_up(before, after) if layout.as_in_the_paper or None not in after else None
    printed = None
    if layout.as_in_the_paper:
        printed = next((one.printed.get(f"{measure} {layout.summary}") for one in theirs if one.printed), None)
    note = ""
    if printed is not None and computed is not None and abs(printed - computed) > _ROUNDING:
        note = f"The paper prints {rate(printed)}; the mean over its own row gives {rate(computed)}."
    return Entry(
        measured=Value.of(values, partial), reported=computed if printed is None else printed, note=note,
        measurements=tuple(ours or theirs),
    )  # fmt: skip


def _rates(
    measurements: Sequence[Measurement], measure: Measure, conditions: Sequence[Condition]
) -> tuple[float | None, list[float | None]]:
    def found(condition: Condition) -> float | None:
        rates = (getattr(one, measure) for one in measurements if condition.holds(one))
        return next((value for value in rates if value is not None), None)

    return found(BEFORE), [found(condition) for condition in conditions]


def _average(before: float | None, after: Sequence[float | None]) -> float | None:  # noqa: ARG001 - like average_drop
    known = [value for value in after if value is not None]
    return fmean(known) if known else None


def _grid(layout: Layout, measure: Measure, columns: list[Column], rows: list[Row], *, extra: str | None) -> Grid:
    """Leave out columns in which nothing stands, mark the best, gather the notes."""
    kept = [number for number in range(len(columns)) if any(row.entries[number].shown is not None for row in rows)]
    filled = [replace(row, entries=tuple(row.entries[number] for number in kept)) for row in rows]
    suffix, more = ("", "") if measure == "wsr" else ("-ba", ", benign accuracy (BA)")
    grid = Grid(
        name=layout.name + suffix, layout=layout, measure=measure, title=layout.title + more,
        columns=tuple(columns[number] for number in kept), rows=tuple(filled), measured=extra is not None,
        notes=(extra,) if extra else (),
    )  # fmt: skip
    marked = _best(grid) if layout.bold and grid.columns else grid
    return replace(marked, notes=tuple(_notes(marked)))


def _best(grid: Grid) -> Grid:
    marked: dict[RowKey, Row] = {}
    for group in grid.groups:
        columns = []
        for number, column in enumerate(grid.columns):
            entries = [row.entries[number] for row in group]
            ours, theirs = (
                _top([entry.comparable(measured=own) for entry in entries], column) for own in (True, False)
            )
            columns.append(
                [
                    replace(entry, best_measured=own, best_reported=said)
                    for entry, own, said in zip(entries, ours, theirs, strict=True)
                ]
            )
        for row, entries_of_row in zip(group, zip(*columns, strict=True), strict=True):
            marked[row.key] = replace(row, entries=entries_of_row)
    return replace(grid, rows=tuple(marked[row.key] for row in grid.rows))


def _top(values: Sequence[float | None], column: Column) -> list[bool]:
    """Tell which of a group's numbers are the best; where all are equal, bold would say nothing."""
    known = [value for value in values if value is not None]
    if column.better is None or len({rate(value) for value in known}) < 2:
        return [False] * len(values)
    best = max(known) if column.better == "higher" else min(known)
    return [value is not None and rate(value) == rate(best) for value in values]


def _notes(grid: Grid) -> list[str]:
    notes = [*grid.notes, *([grid.layout.note] if grid.layout.note else [])]
    for row in grid.rows:
        notes += [f"{', '.join(row.labels)}: {entry.note}" for entry in row.entries if entry.note]
    measured = [entry.measured for entry in grid.entries if entry.measured is not None]
    high = max((value.seeds for value in measured), default=0)
    if measured:
        low = min(value.seeds for value in measured)
        seeds = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
        notes.append(f"Measured over {seeds}{'; ± sample standard deviation' if high > 1 else ''}.")
    if any(entry.sign for entry in grid.entries):
        several = f" 1/{high} ✓: for 1 of {high} seeds, with the largest p-value." if high > 1 else ""
        notes.append(SIGNS + several + (" The paper prints no verdicts." if grid.reported else ""))
    if any(value.partial is not None for value in measured):
        notes.append("… after a summary: not all attacks are done; it is over those that are, and is not compared.")
    return notes
