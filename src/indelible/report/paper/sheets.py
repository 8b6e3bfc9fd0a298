"""The paper's tables as CSV, one sheet for each: headings as in print, rates in per cent, everything a number.

With measurements a column becomes five: measured, sd, seeds, reported, difference. One of WSR has two more: for how
many seeds the verdict shows ownership, and the largest p-value over the seeds. An empty field is a number that does
not exist; a summary over fewer attacks than the table has names their count in a field of its own.
"""

import csv
import io

from indelible.report.paper import words
from indelible.report.paper.grid import Column, Entry, Grid

__all__ = ["as_csv"]

_PARTS = ("measured", "sd", "seeds", "reported", "difference")
_VERDICTS = ("seeds owned", "largest p-value")


def as_csv(grid: Grid) -> str:
    """Return one table as CSV with a heading line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    headings = [axis.title for axis in grid.layout.axes]
    for column in grid.columns:
        title = f"{words.column_title(column)} %" if column.group != "After" else (
            f"{words.column_title(column)} {column.measure.upper()} %"
        )  # fmt: skip
        parts = (*_PARTS, *(_VERDICTS if _has_verdicts(column) else ()))
        headings += [f"{title} {part}" for part in parts] if grid.measured else [title]
        if grid.measured and column.condition is None:
            headings.append(f"{title} attacks if not all")
    writer.writerow(headings)
    for row in grid.rows:
        fields = list(row.labels)
        for column, entry in zip(grid.columns, row.entries, strict=True):
            fields += _fields(entry) if grid.measured else [_percent(entry.reported)]
            fields += _verdicts(column, entry) if grid.measured and _has_verdicts(column) else []
            if grid.measured and column.condition is None:
                fields.append("" if entry.measured is None else str(entry.measured.partial or ""))
        writer.writerow(fields)
    return file.getvalue()


def _has_verdicts(column: Column) -> bool:
    return column.measure == "wsr" and column.condition is not None


def _verdicts(column: Column, entry: Entry) -> list[str]:
    behind = [one for one in words.judged(column, entry) if one.owned is not None]
    values = [one.p_value for one in behind if one.p_value is not None]
    return [str(sum(bool(one.owned) for one in behind)) if behind else "", f"{max(values):.3g}" if values else ""]


def _fields(entry: Entry) -> list[str]:
    own = entry.measured
    return [
        _percent(None if own is None else own.mean), _percent(None if own is None else own.sd),
        "" if own is None else str(own.seeds), _percent(entry.reported), _percent(entry.difference),
    ]  # fmt: skip


def _percent(value: float | None) -> str:
    # Six decimals keep all that was measured and drop the dust of binary fractions.
    return "" if value is None else f"{round(100 * value, 6):g}" if abs(value) < 1e-4 else str(round(100 * value, 6))
