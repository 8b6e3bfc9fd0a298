"""The parts of a cell as text, the same in every form: mean, spread, difference, the mark of an unfinished summary."""

from indelible.report.format import ABSENT, SIGNS, equation, verdict_note, verdict_sign
from indelible.report.paper.grid import Column, Entry, rate
from indelible.report.paper.observations import Observation

__all__ = [
    "BESIDE",
    "UNFINISHED",
    "column_title",
    "difference",
    "judged",
    "measured",
    "reported",
    "sign",
    "signs",
    "spread",
    "step",
    "verdict",
]

UNFINISHED = "…"
"""Stands behind a summary over fewer attacks than the table has."""
BESIDE = "Measured ± standard deviation (reported, difference)."
_STEPS = (0.01, 0.05, 0.15)
"""From which difference on, in either direction, a colour is a step deeper: 1, 5 and 15 points."""


def column_title(column: Column) -> str:
    """Write a column's heading in one line: ``Before BA``, ``After FT``, ``AvgDrop``."""
    return f"{column.group} {column.title}".strip()


def measured(entry: Entry) -> str:
    """Write the measured mean, without its spread."""
    if entry.measured is None:
        return ABSENT
    return rate(entry.measured.mean) + (UNFINISHED if entry.measured.partial is not None else "")


def judged(column: Column, entry: Entry) -> list[Observation]:
    """Return the observations whose verdicts stand behind a measured WSR; none for BA, summaries and the paper's."""
    if column.measure != "wsr" or column.condition is None or entry.measured is None:
        return []
    return [one for one in entry.observations if one.wsr is not None]


def sign(column: Column, entry: Entry) -> str:
    """Write the verdicts behind a measured WSR as a sign; empty where there is none to write."""
    behind = judged(column, entry)
    return verdict_sign([one.owned for one in behind]) if behind else ""


def signs(*, seeds: int, reported: bool) -> str:
    """Explain the signs behind measured numbers."""
    several = f" 1/{seeds} ✓: for 1 of {seeds} seeds." if seeds > 1 else ""
    return SIGNS + several + (" The paper prints no verdicts." if reported else "")


def verdict(column: Column, entry: Entry) -> str:
    """Write the verdicts behind a measured WSR: ``owned, p = 1e-12``, ``owned for 2 of 3 seeds, largest p = 0.1``."""
    behind = judged(column, entry)
    known = [one for one in behind if one.owned is not None]
    if len(known) < 2:
        return verdict_note(known[0].owned, known[0].p_value) if known else "no verdict"
    largest = max((one.p_value for one in known if one.p_value is not None), default=None)
    return f"owned for {sum(bool(one.owned) for one in known)} of {len(known)} seeds, largest {equation(largest)}"


def spread(entry: Entry) -> str:
    """Write the standard deviation; empty for a single seed."""
    return "" if entry.measured is None or entry.measured.sd is None else rate(entry.measured.sd)


def reported(entry: Entry) -> str:
    """Write the paper's number."""
    return ABSENT if entry.reported is None else rate(entry.reported)


def difference(entry: Entry) -> str:
    """Write measured minus reported with its sign: ``+1.20``, ``−0.47``; nothing has the sign of zero."""
    if entry.difference is None:
        return ABSENT
    text = rate(abs(entry.difference))
    return text if text == "0.00" else ("+" if entry.difference > 0 else "−") + text


def step(entry: Entry) -> int:
    """Return how far a difference is, from -3 (far lower than reported) to 3 (far higher)."""
    if entry.difference is None:
        return 0
    size = sum(abs(entry.difference) >= bound - 1e-12 for bound in _STEPS)
    return size if entry.difference > 0 else -size
