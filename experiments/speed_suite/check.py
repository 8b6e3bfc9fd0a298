"""The regression check: measured ratios against committed ones, and against what the project promises.

A ratio may exceed the committed one by its part's tolerance, or reach the highest of the committed rounds: what one of
them took is no regression. Ratios, not seconds: another machine is another speed, but what a method costs beside a
plain step is nearly the same.

| part | tolerance | why |
|---|---|---|
| ``app``, ``methods`` | 15 % | rounds on a busy machine differ by some per cent |
| ``memory`` | 5 % | allocations are counted, but kernels differ in the scratch memory they take |
| ``attacks``, ``verify`` | 50 % | short pieces of work with much beside the passes |
| data pipeline | 100 % | a few milliseconds beside a step |

A machine is noisy, so that one slow round proves nothing. Every round measures all cases in turn, and ratios are taken
within a round. A comparison fails only when the whole 95 % confidence interval of the median ratio lies above what is
allowed; with fewer than six rounds there is no interval, and the median counts.

The grid is not checked: its throughput is a matter of the cores that are free.

Promises, for ResNet-18 at a batch of 128: APP exact at most 3.1 times a plain step, APP balanced 1.25 times, APP
light 1.10 times, memory of all three 1.3 times; for the CPU network the data pipeline at most 5 % of a plain step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from speed_suite.document import SpeedRow

__all__ = ["PROMISES", "TOLERANCES", "Comparison", "check_speed"]

TOLERANCES = {"app": 0.15, "methods": 0.15, "memory": 0.05, "attacks": 0.5, "verify": 0.5}
_PIPELINE, _PIPELINE_TOLERANCE = "data pipeline", 1.0
PROMISES = {
    ("app", "resnet-18", 128, "APP exact"): 3.1,
    ("app", "resnet-18", 128, "APP balanced"): 1.25,
    ("app", "resnet-18", 128, "APP light"): 1.10,
    ("memory", "resnet-18", 128, "APP exact"): 1.3,
    ("memory", "resnet-18", 128, "APP light"): 1.3,
    ("memory", "resnet-18", 128, "APP balanced"): 1.3,
    ("app", "resnet-mini", 128, _PIPELINE): 0.05,
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One comparison.

    Attributes:
        row: What was measured.
        allowed: The highest ratio that passes.
        why: Where that comes from.
    """

    row: SpeedRow
    allowed: float
    why: str

    @property
    def holds(self) -> bool:
        """Whether the measured ratio is, or may be, within what is allowed."""
        least = self.row.ratio if self.row.interval is None else self.row.interval[0]
        return least <= self.allowed

    def sentence(self) -> str:
        """Say what was found."""
        verdict = "ok" if self.holds else "SLOWER" if self.row.part != "memory" else "MORE"
        where = f"{self.row.part}, {self.row.network}, {self.row.case}"
        between = ""
        if self.row.interval is not None:
            between = f" (95 %: {self.row.interval[0]:.3g} to {self.row.interval[1]:.3g})"
        return f"{verdict:6} {where}: {self.row.ratio:.3g}{between}, allowed {self.allowed:.3g} ({self.why})"


def check_speed(
    rows: Sequence[SpeedRow], baseline: Sequence[SpeedRow], *, tolerance: float | None = None, promises: bool = True
) -> list[Comparison]:
    """Compare measured rows with the baseline's and with what is promised.

    Args:
        rows: Measured now.
        baseline: Committed; rows that were not measured now are passed over, and so are new ones.
        tolerance: Instead of each part's own.
        promises: Also check what is promised.
    """
    committed = {row.name: row for row in baseline}
    findings = []
    for row in rows:
        spare = _tolerance(row) if tolerance is None else tolerance
        known = committed.get(row.name)
        if known is not None and row.part in TOLERANCES and row.case != row.base:
            allowed, why = known.ratio * (1 + spare), f"committed {known.ratio:.3g}, {100 * spare:.0f} % more at most"
            if tolerance is None and known.high > allowed:
                allowed, why = known.high, f"committed {known.ratio:.3g}, one round of it {known.high:.3g}"
            findings.append(Comparison(row=row, allowed=allowed, why=why))
        if promises and row.name in PROMISES:
            findings.append(Comparison(row=row, allowed=PROMISES[row.name], why="promised"))
    return findings


def _tolerance(row: SpeedRow) -> float:
    return _PIPELINE_TOLERANCE if row.case == _PIPELINE else TOLERANCES.get(row.part, 0.0)
