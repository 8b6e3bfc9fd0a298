"""The planner: how many queries a wanted alpha and power take, before anything is asked.

A test that needs h(n) hits of n queries for p <= alpha finds a model of success rate w with power P[Bin(n, w) >= h(n)].
Power is a saw-tooth in n, since h(n) jumps: the plan is the smallest n that reaches the wanted power.

Known values, p <= 1e-6 at a null rate of 0.1: 14 of 30, 18 of 50 and 28 of 100 hits; for 99 % power 13 queries at WSR
0.9, 26 at 0.7, 54 at 0.5 and 178 at 0.3.

With keyed labels a miss that is the true class does not count as a trial (:mod:`indelible.verify.statistics.keyed`).
``wrong`` is the share of misses that are answered with some other wrong class; 1, the default, is the worst case.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 1e-6 | ours |
| w | ``wsr`` | - | measured, or what one fears is left after an attack |
| q | ``null_rate`` | 0.1 | ours: 1/(K - 1) with keyed labels; with a fixed target what the decoys give |
"""

import math
from dataclasses import dataclass
from typing import Any

from indelible.base.errors import InputError
from indelible.base.records import plain
from indelible.verify.statistics.binomial import binomial_tail

__all__ = ["Plan", "needed_hits", "plan", "power_of"]

_MOST = 10_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a verification takes.

    Attributes:
        queries: Key samples to ask.
        hits: Hits among them that make p <= alpha (with keyed labels: if no answer is the true class).
        power: Chance of that for a model of success rate ``wsr``.
        wsr: The success rate planned for.
        alpha: Level of the decision.
        null_rate: Chance of a hit for a model that never saw the key, at most.
    """

    queries: int
    hits: int
    power: float
    wsr: float
    alpha: float
    null_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def needed_hits(trials: int, null_rate: float, alpha: float) -> int | None:
    """Return the fewest hits of ``trials`` with p <= alpha; None if not even all are enough."""
    low, high = 0, trials + 1
    while low < high:  # the tail falls with the hits: bisect for the first that is small enough
        middle = (low + high) // 2
        if middle > trials or binomial_tail(middle, trials, null_rate) <= alpha:
            high = middle
        else:
            low = middle + 1
    return None if low > trials else low


def power_of(queries: int, *, wsr: float, null_rate: float, alpha: float, wrong: float = 1.0) -> float:
    """Return the chance that ``queries`` key samples give p <= alpha on a model of success rate ``wsr``, exactly.

    Args:
        queries: Key samples to ask.
        wsr: Chance that a sample is answered with its label.
        null_rate: Chance of a hit for a model that never saw the key.
        alpha: Level of the decision.
        wrong: Share of the misses that count as trials; below 1 with keyed labels only.
    """
    counted = wsr + (1.0 - wsr) * wrong
    if counted >= 1.0:
        hits = needed_hits(queries, null_rate, alpha)
        return 0.0 if hits is None else binomial_tail(hits, queries, wsr)
    total, before = 0.0, 0.0
    for trials in range(queries, 0, -1):  # P[exactly this many count], from the tail down
        tail = binomial_tail(trials, queries, counted)
        hits = needed_hits(trials, null_rate, alpha)
        if hits is not None:
            total += (tail - before) * binomial_tail(hits, trials, wsr / counted)
        before = tail
    return total


def plan(
    wsr: float, *, alpha: float = 1e-6, power: float = 0.99, null_rate: float = 0.1, wrong: float = 1.0
) -> Plan:  # fmt: skip
    """Return the fewest queries with the wanted power; arguments as in :func:`power_of`."""
    for name, value in (("alpha", alpha), ("power", power), ("null_rate", null_rate)):
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} must lie between 0 and 1, but is {value}.")
    if not 0.0 <= wrong <= 1.0:
        raise InputError(f"wrong is a share in [0, 1], but is {wrong}.")
    if not null_rate < wsr <= 1.0:
        raise InputError(
            f"a WSR of {wsr} cannot be told from a null rate of {null_rate}: it must be larger, and at most 1."
        )
    # Not even certain hits reach alpha with fewer; the epsilon keeps an exact power of the rate on its own side.
    queries = max(1, math.ceil(math.log(alpha) / math.log(null_rate) - 1e-9))
    while (reached := power_of(queries, wsr=wsr, null_rate=null_rate, alpha=alpha, wrong=wrong)) < power:
        queries += 1
        if queries > _MOST:
            raise InputError(f"a WSR of {wsr} over a null rate of {null_rate} takes more than {_MOST} queries.")
    hits = needed_hits(queries, null_rate, alpha)
    return Plan(
        queries=queries, hits=queries if hits is None else hits, power=reached, wsr=wsr, alpha=alpha,
        null_rate=null_rate,
    )  # fmt: skip
