"""A filled table: columns, rows, and entries that hold measured and reported numbers with what stands behind them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from indelible.report.paper.layouts import Condition, Layout
from indelible.report.paper.observations import Observation

__all__ = ["QUOTED", "Column", "Entry", "Grid", "Key", "Measure", "Row", "Value", "rate"]

Measure = Literal["wsr", "ba"]
Key = tuple[Any, ...]
QUOTED = "*"
"""Ends the name of a method whose numbers are quoted from its own publication, as in the paper's tables."""


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

    @property
    def quoted(self) -> bool:
        """Whether its numbers are quoted from a method's own publication: such a row is never measured."""
        return bool(self.key) and str(self.key[-1]).endswith(QUOTED)


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
    def reported(self) -> bool:
        """Whether the paper has any number of it."""
        return any(entry.reported is not None for row in self.rows for entry in row.entries)

    @property
    def compared(self) -> bool:
        """Whether any cell is both measured and reported."""
        return any(entry.difference is not None for row in self.rows for entry in row.entries)
