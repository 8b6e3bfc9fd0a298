"""A layout filled with measurements: means over seeds, summaries of rows, differences from the paper, the best.

docs/reports.md has the formulas. A preset of one's own is summed up over its own attacks. While attacks are missing, a
summary is taken over those that exist, is marked as such, and is not compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import Measurement, Results
from indelible.bench.reported import published
from indelible.report.format import rate
from indelible.report.model_stages import average_drop
from indelible.report.page_look import filled_lines
from indelible.report.table_grid import Column, Entry, Grid, Measure, Row, RowKey, Value
from indelible.report.table_layouts import BEFORE, MAIN, TABLES, Condition, Layout, layout_for, title_of

ALL = "all"

_SUMMARY_TITLES = {"avg_drop": "AvgDrop", "avg": "AVG"}
# Before, mean and printed summary are each rounded to 0.01 points: together they may be this far apart.
_ROUNDING = 1.5e-4 + 1e-9


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
        grids += fill(known[name])
    return grids


def measured_tables(results: Sequence[Results]) -> list[Grid]:
    """Return the tables of some presets' results, with the paper's numbers beside them where there are any."""
    grids = []
    for one in results:
        if not one.measurements:
            raise InputError(
                f"the results of {one.preset!r} hold no cell yet. Run it: indelible bench run {one.preset}"
            )
        grids += fill(layout_for(one), one.measurements)
    return grids


def fill(layout: Layout, measured: Sequence[Measurement] = ()) -> list[Grid]:
    """Return the tables of a layout: WSR, and BA where there is any after an attack, with the paper's rows."""
    theirs = _by_row(layout, [one for section in layout.sections for one in published(section)])
    ours = _by_row(layout, measured)
    keys = list(ours) if measured and not layout.unmeasured else list(dict.fromkeys([*theirs, *ours]))
    keys.sort(key=lambda key: [axis.rank(value) for axis, value in zip(layout.axes, key, strict=True)])
    shown = [
        key
        for key in keys
        if key in ours or not layout.methods or any(one.method in layout.methods for one in theirs[key])
    ]
    compared = {
        "measured": sorted({title_of(one.architecture) for key in ours for one in ours[key]}),
        "reported": sorted({title_of(one.architecture) for key in ours for one in theirs.get(key, ())}),
    }
    grids = []
    measures: tuple[Measure, ...] = ("wsr", "ba")
    for measure in measures:
        columns = _columns(layout, measure)
        rows = [_row(layout, columns, key, theirs.get(key, ()), ours.get(key, ())) for key in shown]
        rows = [row for row in rows if not row.quoted or any(entry.reported is not None for entry in row.entries)]
        # Columns in which nothing stands are left out.
        kept = [number for number in range(len(columns)) if any(row.entries[number].shown is not None for row in rows)]
        if not any(columns[number].group == "After" for number in kept):
            continue
        suffix, more = ("", "") if measure == "wsr" else ("-ba", ", benign accuracy (BA)")
        grid = Grid(
            name=layout.name + suffix, layout=layout, measure=measure, title=layout.title + more,
            columns=tuple(columns[number] for number in kept), measured=bool(ours),
            rows=tuple(replace(row, entries=tuple(row.entries[number] for number in kept)) for row in rows),
        )  # fmt: skip
        grid = _best(grid) if layout.bold else grid
        grids.append(replace(grid, notes=tuple(filled_lines("notes.txt.j2", grid=grid, networks=compared))))
    return grids


def _by_row(layout: Layout, measurements: Sequence[Measurement]) -> dict[RowKey, list[Measurement]]:
    rows: dict[RowKey, list[Measurement]] = {}
    for one in measurements:
        if layout.admits(one):
            rows.setdefault(tuple(one.value(axis.field) for axis in layout.axes), []).append(one)
    return rows


def _columns(layout: Layout, measure: Measure) -> list[Column]:
    before: tuple[Measure, ...] = ("ba", "wsr") if measure == "wsr" else ("ba",)
    # That an attack leaves BA high is good for the thief: no number of that table is best but the first.
    high = True if measure == "wsr" else None
    columns = [
        Column(group="Before", title=name.upper(), measure=name, condition=BEFORE, high_is_best=True) for name in before
    ]
    columns += [
        Column(group="After", title=condition.title, measure=measure, condition=condition, high_is_best=high)
        for condition in layout.conditions
    ]
    if layout.summary is not None:
        title, best = _SUMMARY_TITLES[layout.summary], high and layout.summary == "avg"
        columns.append(Column(group="", title=title, measure=measure, condition=None, high_is_best=best))
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
        entries.append(
            Entry(
                measured=Value.of(list(_rates(ours, column.measure, column.condition))),
                reported=next(_rates(theirs, column.measure, column.condition), None),
                measurements=tuple(at or [one for one in theirs if column.condition.holds(one)]),
                judged=tuple(one for one in at if one.wsr is not None) if column.measure == "wsr" else (),
            )
        )
    return Row(labels=tuple(title_of(value) for value in key), key=key, entries=tuple(entries))


def _rates(measurements: Sequence[Measurement], measure: Measure, condition: Condition) -> Iterator[float]:
    """Yield what was measured under a condition."""
    rates = (getattr(one, measure) for one in measurements if condition.holds(one))
    return (value for value in rates if value is not None)


def _summary(layout: Layout, measure: Measure, theirs: Sequence[Measurement], ours: Sequence[Measurement]) -> Entry:
    def row_of(some: Sequence[Measurement]) -> tuple[float | None, ...]:
        """Return the rate before attack, and after each attack that counts."""
        return tuple(next(_rates(some, measure, condition), None) for condition in (BEFORE, *layout.summed))

    rows = [row_of([one for one in ours if one.seed == seed]) for seed in dict.fromkeys(one.seed for one in ours)]
    needed = slice(1 if layout.summary == "avg" else 0, None)
    whole = [row for row in rows if None not in row[needed]]
    partial = None
    if not whole:
        # Over those attacks that every seed has, so that a mean of unlike things is never taken.
        common = [place for place in range(1, len(layout.summed) + 1) if all(row[place] is not None for row in rows)]
        whole = [(row[0], *(row[place] for place in common)) for row in rows]
        partial = len(common)
    values = [value for row in whole if (value := _sum_up(layout, row)) is not None]
    said = row_of(theirs)
    # The same attacks on both sides, or no comparison: the paper's own summary is over its six.
    computed = _sum_up(layout, said) if layout.as_in_the_paper or None not in said[1:] else None
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


def _sum_up(layout: Layout, row: Sequence[float | None]) -> float | None:
    """Return the summary of a rate before attack and those after; what was not measured does not count."""
    if layout.summary == "avg_drop":
        return average_drop(row[0], row[1:])
    known = [value for value in row[1:] if value is not None]
    return fmean(known) if known else None


def _best(grid: Grid) -> Grid:
    """Mark the best of each column within its group; where all print the same, bold would say nothing."""
    entries = {row.key: list(row.entries) for row in grid.rows}
    for group in grid.groups:
        for number, column in enumerate(grid.columns):
            for own in (True, False):
                values = {row.key: row.entries[number].comparable(measured=own) for row in group}
                known = {key: value for key, value in values.items() if value is not None}
                if column.high_is_best is not None and len(set(map(rate, known.values()))) > 1:
                    best = max(known.values()) if column.high_is_best else min(known.values())
                    for key, value in known.items():
                        if rate(value) == rate(best):
                            entry = entries[key][number]
                            marked = replace(entry, best_measured=True) if own else replace(entry, best_reported=True)
                            entries[key][number] = marked
    return replace(grid, rows=tuple(replace(row, entries=tuple(entries[row.key])) for row in grid.rows))
