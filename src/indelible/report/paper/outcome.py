"""What the tables say in a sentence or two: how often APP keeps the most, and in how many groups it drops the least."""

from collections.abc import Sequence

from indelible.report.format import join_words
from indelible.report.paper import words
from indelible.report.paper.grid import Entry, Grid

__all__ = ["outcome", "wins"]

Count = tuple[int, int]


def wins(grid: Grid, *, measured: bool) -> tuple[Count, Count]:
    """Count where APP is best among at least two: ``((cells won, of), (groups with the least AvgDrop, of))``.

    Equal numbers, as printed, are a win for both.
    """
    cells, drops = [0, 0], [0, 0]
    for group in grid.groups:
        for number, column in enumerate(grid.columns):
            counted = cells if column.group == "After" else drops if column.title == "AvgDrop" else None
            known = [row for row in group if _known(row.entries[number], measured=measured)]
            app = next((row for row in known if row.key[-1] == "app"), None)
            if counted is None or app is None or len(known) < 2:
                continue
            entry = app.entries[number]
            counted[0] += entry.best_measured if measured else entry.best_reported
            counted[1] += 1
    return (cells[0], cells[1]), (drops[0], drops[1])


def _known(entry: Entry, *, measured: bool) -> bool:
    if not measured:
        return entry.reported is not None
    return entry.measured is not None and entry.measured.partial is None


def outcome(grids: Sequence[Grid]) -> str:
    """Return what stands at the top of a page of tables."""
    main = [grid for grid in grids if grid.measure == "wsr"]
    if not any(grid.measured for grid in grids):
        found = [(grid.title, *wins(grid, measured=False)[0]) for grid in main if grid.layout.axes[0].field == "kind"]
        counts = [
            f"{won} of {of}{'' if place else ' cases'} on {title}" for place, (title, won, of) in enumerate(found) if of
        ]
        said = "These are the numbers that the paper prints; nothing was run for this page."
        return said + (f" APP keeps the highest WSR after attack in {join_words(counts)}." if counts else "")
    return " ".join(_measured(grid) for grid in main) or "Nothing was measured yet."


def _measured(grid: Grid) -> str:
    done = sum(entry.measured is not None for row in grid.rows for entry in _after(grid, row.entries))
    total = sum(len(_after(grid, row.entries)) for row in grid.rows if not row.quoted)
    said = f"{grid.title}: {done} of {total} attack cells are measured."
    (won, of), (least, kinds) = wins(grid, measured=True)
    said += _shown(grid)
    if not of:
        return said
    (theirs, printed), _ = wins(grid, measured=False)
    paper = f" ({theirs} of {printed} in the paper)" if printed else ""
    said += f" APP keeps the highest WSR in {won} of {of} comparisons{paper}"
    return said + (f" and has the smallest AvgDrop in {least} of {kinds} groups." if kinds else ".")


def _shown(grid: Grid) -> str:
    """Count the measured cells, before attack too, whose verdict shows ownership for every seed; APP apart."""
    counts: dict[str, list[bool]] = {"": [], "app": []}
    for row in grid.rows:
        for column, entry in zip(grid.columns, row.entries, strict=True):
            known = [one.owned for one in words.judged(column, entry) if one.owned is not None]
            if known:
                counts[""].append(all(known))
                if row.key[-1] == "app":
                    counts["app"].append(all(known))
    if not counts[""]:
        return ""
    own = f" ({sum(counts['app'])} of {len(counts['app'])} with APP)" if counts["app"] else ""
    return f" The verdict shows ownership in {sum(counts[''])} of {len(counts[''])} cells, before attack included{own}."


def _after(grid: Grid, entries: Sequence[Entry]) -> list[Entry]:
    return [entry for column, entry in zip(grid.columns, entries, strict=True) if column.group == "After"]
