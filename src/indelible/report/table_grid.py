"""A filled table: columns, rows, and entries that hold measured and reported numbers, and how each is written.

Every form of a table (HTML, Markdown, LaTeX) takes the texts of a cell from here, so that all say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, stdev
from typing import Any, Literal

from indelible.bench.measurement import Measurement
from indelible.report.format import ABSENT, equation, rate, verdict_note, verdict_sign
from indelible.report.table_layouts import Condition, Layout

Measure = Literal["wsr", "ba"]
RowKey = tuple[Any, ...]
QUOTED = "*"
"""Ends the name of a method whose numbers are quoted from its own publication, as in the paper's tables."""
UNFINISHED = "…"
"""Stands behind a summary over fewer attacks than the table has."""
_STEPS = (0.01, 0.05, 0.15)
"""From which difference on, in either direction, a colour is a step deeper: 1, 5 and 15 points."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A mean over seeds."""

    mean: float  # the mean, a fraction
    sd: float | None = None  # sample standard deviation; None for a single seed
    seeds: int = 1  # how many
    partial: int | None = None  # over how many attacks a summary was taken when some are missing; None if none is

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
    high_is_best: bool | None  # None where no number is best

    @property
    def heading(self) -> str:
        """The heading in one line: ``Before BA``, ``After FT``, ``AvgDrop``."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A cell of a table."""

    measured: Value | None = None  # our mean over seeds
    reported: float | None = None  # the paper's number
    best_measured: bool = False  # whether ours is the best of its column within its group
    best_reported: bool = False  # likewise for the paper's
    note: str = ""  # what a reader must know
    measurements: tuple[Measurement, ...] = ()  # what stands behind the number that is shown
    # those whose verdicts stand behind a measured WSR; none for BA, summaries and the paper's numbers
    judged: tuple[Measurement, ...] = ()

    @property
    def difference(self) -> float | None:
        """Measured minus reported; None when either is missing or the summary is not over the same attacks."""
        ours = self.comparable(measured=True)
        return None if ours is None or self.reported is None else ours - self.reported

    def comparable(self, *, measured: bool) -> float | None:
        """Return the measured or the reported number; None when it is missing or not over all attacks."""
        if not measured:
            return self.reported
        return None if self.measured is None or self.measured.partial is not None else self.measured.mean

    @property
    def shown(self) -> float | None:
        """The number that stands first: measured if there is one."""
        return self.reported if self.measured is None else self.measured.mean

    @property
    def verdicts(self) -> list[Measurement]:
        """Those of ``judged`` that have a verdict."""
        return [one for one in self.judged if one.owned is not None]

    @property
    def measured_text(self) -> str:
        """The measured mean, without its spread."""
        if self.measured is None:
            return ABSENT
        return rate(self.measured.mean) + (UNFINISHED if self.measured.partial is not None else "")

    @property
    def spread_text(self) -> str:
        """The standard deviation; empty for a single seed."""
        return "" if self.measured is None or self.measured.sd is None else rate(self.measured.sd)

    @property
    def sign(self) -> str:
        """The verdicts behind a measured WSR as a sign, ``2/3 ✓`` for several seeds; empty where none is to stand."""
        return verdict_sign([one.owned for one in self.judged]) if self.judged else ""

    @property
    def owned(self) -> bool:
        """Whether every verdict behind a measured WSR shows ownership."""
        return bool(self.verdicts) and all(one.owned for one in self.verdicts)

    @property
    def worst_p(self) -> str:
        """The largest p-value of several seeds, ``p ≤ 1e-12``; empty for a single one."""
        known = [one.p_value for one in self.verdicts if one.p_value is not None]
        return equation(max(known)).replace("=", "≤") if len(known) > 1 else ""

    @property
    def verdict(self) -> str:
        """The verdicts in words: ``owned, p = 1e-12``, ``owned for 2 of 3 seeds, largest p = 0.1``."""
        known = self.verdicts
        if len(known) < 2:
            return verdict_note(known[0].owned, known[0].p_value) if known else "no verdict"
        largest = max((one.p_value for one in known if one.p_value is not None), default=None)
        return f"owned for {sum(bool(one.owned) for one in known)} of {len(known)} seeds, largest {equation(largest)}"

    @property
    def difference_text(self) -> str:
        """Measured minus reported with its sign: ``+1.20``, ``−0.47``; nothing has the sign of zero."""
        if self.difference is None:
            return ABSENT
        text = rate(abs(self.difference))
        return text if text == "0.00" else ("+" if self.difference > 0 else "−") + text

    @property
    def step(self) -> int:
        """How far the difference is, from -3 (far lower than reported) to 3 (far higher)."""
        if self.difference is None:
            return 0
        size = sum(abs(self.difference) >= bound - 1e-12 for bound in _STEPS)
        return size if self.difference > 0 else -size


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: headings, coordinates, and an entry for each column."""

    labels: tuple[str, ...]
    key: RowKey
    entries: tuple[Entry, ...]

    @property
    def quoted(self) -> bool:
        """Whether its numbers are quoted from a method's own publication: such a row is never measured."""
        return bool(self.key) and str(self.key[-1]).endswith(QUOTED)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A filled table."""

    name: str  # unique on a page
    layout: Layout  # its description
    measure: Measure  # `"wsr"` for the main table, `"ba"` for the one beside it
    title: str  # heading
    columns: tuple[Column, ...]  # of numbers
    rows: tuple[Row, ...]  # in the paper's order
    measured: bool  # whether anything in it was measured
    notes: tuple[str, ...] = ()  # what a reader must know

    @property
    def groups(self) -> list[list[Row]]:
        """Rows that are compared with each other."""
        made: dict[RowKey, list[Row]] = {}
        for row in self.rows:
            made.setdefault(row.key[:-1] if self.layout.grouped else (), []).append(row)
        return list(made.values())

    @property
    def headings(self) -> list[tuple[str, list[Column]]]:
        """The columns, by what stands above them."""
        return [(group, list(columns)) for group, columns in groupby(self.columns, key=lambda column: column.group)]

    @property
    def entries(self) -> list[Entry]:
        """All cells."""
        return [entry for row in self.rows for entry in row.entries]

    @property
    def reported(self) -> bool:
        """Whether the paper has any number of it."""
        return any(entry.reported is not None for entry in self.entries)

    @property
    def compared(self) -> bool:
        """Whether any cell is both measured and reported."""
        return any(entry.difference is not None for entry in self.entries)

    @property
    def shared(self) -> int:
        """How many row headings a whole group shares."""
        return len(self.layout.axes) - 1 if self.layout.grouped else 0

    def labelled(self) -> list[tuple[Row, list[str]]]:
        """Return rows with the headings that are printed: what a whole group shares stands once, as in the paper."""
        return [
            (row, ["" if number and at < self.shared else text for at, text in enumerate(row.labels)])
            for group in self.groups
            for number, row in enumerate(group)
        ]
