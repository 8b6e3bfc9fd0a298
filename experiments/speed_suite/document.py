"""From measured rounds to numbers: rows with medians and spreads, one JSON document, one table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from indelible.base.errors import DamagedFileError

__all__ = ["SpeedRow", "median_interval", "rows_of", "rows_of_document", "speed_document", "speed_table"]

_FORMAT = 1
_CONFIDENCE = 0.95
_RATES = {"verify": "queries/s", "grid": "cells/s"}


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One case of one part.

    Attributes:
        part: Which part of the measurement, such as ``"app"``.
        network: Name of the network.
        batch_size: Images in a plain step.
        case: What was measured.
        value: Median over rounds, of what ``unit`` says.
        unit: In words: ``"seconds a step"``.
        ratio: Median over rounds of the ratio to the base case of the same round.
        low: Lowest of those ratios.
        high: Highest of them.
        base: The base case.
        rounds: How many rounds.
        interval: 95 % confidence interval of the median ratio; None with fewer than six rounds.
    """

    part: str
    network: str
    batch_size: int
    case: str
    value: float
    unit: str
    ratio: float
    low: float
    high: float
    base: str
    rounds: int
    interval: tuple[float, float] | None = None

    @property
    def name(self) -> tuple[str, str, int, str]:
        """What makes it the same row in another measurement."""
        return self.part, self.network, self.batch_size, self.case


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a confidence interval of the median, of at least 95 %; None when there are too few values for one.

    By order statistics, without an assumption on their law: the median lies below the k-th smallest value, or above the
    k-th largest, with probability 2 P[Bin(n, 1/2) < k]. k is the largest for which that is at most 5 %.
    """
    ordered, count, k, outside = sorted(values), len(values), 0, 2 / 2 ** len(values)
    while outside <= 1 - _CONFIDENCE:
        k += 1
        outside += 2 * math.comb(count, k) / 2**count
    return (ordered[k - 1], ordered[-k]) if k else None


def rows_of(entry: Mapping[str, Any]) -> list[SpeedRow]:
    """Return the rows of one unit from its measured rounds."""
    settings, rounds, base = entry["settings"], entry["rounds"], entry["base"]
    rows = []
    for case in rounds[0]:
        ratios = [one[case] / one[base] for one in rounds]
        rows.append(
            SpeedRow(
                part=settings["part"], network=settings["network"], batch_size=settings["batch_size"], case=case,
                value=statistics.median(one[case] for one in rounds), unit=entry["value"],
                ratio=statistics.median(ratios), low=min(ratios), high=max(ratios), base=base, rounds=len(rounds),
                interval=median_interval(ratios),
            )
        )  # fmt: skip
    return rows


def speed_document(entries: Sequence[Mapping[str, Any]], command: str) -> dict[str, Any]:
    """Return one JSON document of some units: rows for people and checks, and the rounds that they come from."""
    return {
        "format": _FORMAT,
        "command": command,
        "rows": [asdict(row) for entry in entries for row in rows_of(entry)],
        "measured": list(entries),
    }


def rows_of_document(document: Any) -> list[SpeedRow]:
    """Return the rows of :func:`speed_document`."""
    if not isinstance(document, Mapping) or document.get("format") != _FORMAT or "rows" not in document:
        raise DamagedFileError(
            "expected a document of experiments/speed.py. Measure again: python experiments/speed.py --out FILE."
        )
    # JSON has lists for tuples; records of fewer than six rounds have no interval.
    return [
        SpeedRow(**{**row, "interval": None if row.get("interval") is None else tuple(row["interval"])})
        for row in document["rows"]
    ]


def speed_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return all units as tables in Markdown whose columns are aligned, for a terminal and a page alike."""
    return "\n\n".join(_table(entry) for entry in entries if entry["rounds"])


def _table(entry: Mapping[str, Any]) -> str:
    settings, rows = entry["settings"], rows_of(entry)
    part, per = settings["part"], rows[0].unit
    head = ["case", per, f"ratio to {rows[0].base}", "lowest - highest"]
    cells = [[row.case, _number(row.value), f"{row.ratio:.3g}", f"{row.low:.3g} - {row.high:.3g}"] for row in rows]
    if part in _RATES:
        head.insert(2, _RATES[part])
        for row, line in zip(rows, cells, strict=True):
            line.insert(2, _number(1 / row.value))
    title = (
        f"{part}: {settings['network']}, batch {settings['batch_size']}, {settings['threads']} thread(s), "
        f"{settings['clock']} time, {rows[0].rounds} round(s)"
    )
    return "\n".join([title, "", *_aligned(head, cells)])


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def _aligned(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(values: Sequence[str]) -> str:
        first, *rest = (
            value.ljust(width) if column == 0 else value.rjust(width)
            for column, (value, width) in enumerate(zip(values, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    return [line(head), line(rule), *map(line, cells)]
