"""Figures of the tables: what remains of the watermark under each attack, or along what an ablation varies.

| ``across`` | horizontal axis | curves | charts |
|---|---|---|---|
| ``attacks`` | before, and each attack | rows | one for each group |
| ``rows`` | last row heading | groups, or the attacks where there is one group | one for each attack, or one |
| ``groups`` | groups | last row heading | one for each attack |

Measured and reported numbers have charts of their own, side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from indelible.report.curves import HOLLOW, Chart, Panel, Series
from indelible.report.paper.grid import Entry, Grid, Row
from indelible.report.paper.layouts import title_of
from indelible.report.paper.observations import COMPONENTS

__all__ = ["figures"]

Read = Callable[[Entry], float | None]
Curve = tuple[str, Sequence[Entry]]
# A method looks the same in every figure; APP has the solid line.
_HOLLOW = f"{HOLLOW} Of several seeds: for at least one."
_LOOKS = {"Vanilla": 0, "EW": 1, "APP": 2, "CW": 3, "c-BN only": 4, "APP only": 5}


def figures(grid: Grid) -> Panel | None:
    """Return the charts of a table; None for that of BA, and where nothing can be drawn."""
    if grid.measure != "wsr":
        return None
    kinds: list[tuple[str, Read]] = []
    if grid.measured:
        kinds.append(("measured", lambda entry: None if entry.measured is None else entry.measured.mean))
    if not grid.measured or grid.compared:
        kinds.append(("reported", lambda entry: entry.reported))
    looks = _looks(list(dict.fromkeys(label for *_, curves in _drawings(grid) for label, _ in curves)))
    charts = [
        _chart(f"{title}, {kind}" if title else kind.capitalize(), over, ticks, curves, kind, read, looks)
        for title, over, ticks, curves in _drawings(grid)
        for kind, read in kinds
    ]
    kept = tuple(chart for chart in charts if chart.series)
    hollow = any(series.hollow for chart in kept for series in chart.series)
    used = {series.label: series.look for chart in kept for series in chart.series}
    note = _HOLLOW if hollow else ""
    return Panel(title="WSR in a picture", charts=kept, legend=tuple(used.items()), note=note) if kept else None


def _unproven(entry: Entry) -> bool:
    """Tell whether a verdict behind a measured WSR does not show ownership, for any seed."""
    return any(one.owned is False for one in entry.observations if one.wsr is not None)


def _looks(labels: Sequence[str]) -> dict[str, int]:
    """Give each curve a look: methods their own, others those that are left."""
    known = {label: _LOOKS[label] for label in labels if label in _LOOKS}
    left = (number for number in count() if number not in known.values())
    return {label: known[label] if label in known else next(left) for label in labels}


def _drawings(grid: Grid) -> list[tuple[str, str, list[str], list[Curve]]]:
    """Return (title, horizontal axis, ticks, curves) of each chart."""
    last, groups = grid.layout.axes[-1].title, grid.groups
    places = [number for number, column in enumerate(grid.columns) if column.measure == "wsr" and column.condition]
    titles = [grid.columns[number].title if grid.columns[number].group == "After" else "Before" for number in places]
    if grid.layout.across == "attacks":
        return [(_shared(grid, group[0]), "Attack", titles, _curves(grid, group, places)) for group in groups]
    after = [(number, title) for number, title in zip(places, titles, strict=True) if title != "Before"]
    if grid.layout.across == "rows" and len(groups) == 1:
        ticks = [row.labels[-1] for row in grid.rows]
        return [("", last, ticks, [(title, [row.entries[number] for row in grid.rows]) for number, title in after])]
    if grid.layout.across == "rows":
        ticks = [row.labels[-1] for row in groups[0]]
        return [
            (
                title,
                last,
                ticks,
                [(_shared(grid, group[0]), [row.entries[number] for row in group]) for group in groups],
            )
            for number, title in after
        ]
    names = list(dict.fromkeys(row.labels[-1] for row in grid.rows))
    ticks = [_shared(grid, group[0]) for group in groups]
    over = ", ".join(axis.title for axis in grid.layout.axes[:-1])
    return [
        (title, over, ticks, [(name, [_find(group, name, number) for group in groups]) for name in names])
        for number, title in after
    ]


def _curves(grid: Grid, rows: Sequence[Row], places: Sequence[int]) -> list[Curve]:
    """Return a curve for each row; two quoted numbers are none."""
    return [(_own(grid, row), _pick(row, places)) for row in rows if not row.quoted]


def _shared(grid: Grid, row: Row) -> str:
    return ", ".join(row.labels[:-1]) if grid.layout.grouped else ""


def _own(grid: Grid, row: Row) -> str:
    if grid.layout.grouped or len(row.labels) == 1:
        return row.labels[-1]
    # Rows of ticks are called what they are elsewhere.
    named = next((method for method, parts in COMPONENTS.items() if parts == row.key), None)
    return ", ".join(row.labels) if named is None else title_of(named)


def _pick(row: Row, places: Sequence[int]) -> list[Entry]:
    return [row.entries[number] for number in places]


def _find(group: Sequence[Row], name: str, number: int) -> Entry:
    return next((row.entries[number] for row in group if row.labels[-1] == name), Entry())


def _chart(
    title: str,
    over: str,
    ticks: Sequence[str],
    curves: Sequence[Curve],
    kind: str,
    read: Read,
    looks: Mapping[str, int],
) -> Chart:
    series = []
    for label, entries in curves:
        points = tuple(
            (float(at), 100 * value) for at, entry in enumerate(entries) if (value := read(entry)) is not None
        )
        if points:
            known = [entry for entry in entries if read(entry) is not None]
            hollow = tuple(at for at, entry in enumerate(known) if kind == "measured" and _unproven(entry))
            series.append(Series(label, looks[label], points, hollow))
    return Chart(title, "%", tuple(series), "WSR", over, tuple(ticks))
