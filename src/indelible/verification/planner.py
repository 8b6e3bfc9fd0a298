"""The planner: how many queries an alpha and a power need, before any is sent.

A test that needs h(n) hits of n queries for p <= alpha finds a model of success rate w with power P[Bin(n, w) >= h(n)].
Power is a saw-tooth in n, since h(n) jumps: the plan is the smallest n that reaches the wanted power.

Known values, p <= 1e-6 at a null rate of 0.1: 14 of 30, 18 of 50 and 28 of 100 hits; for 99 % power 13 queries at WSR
0.9, 26 at 0.7, 54 at 0.5 and 178 at 0.3.

With keyed labels a miss that is the true class does not count as a trial
(:mod:`indelible.verification.statistics.exact_tests`); planned for is the worst case, that none is.

A codebook is planned in carriers of each mark, by simulation with a fixed seed: a carrier with mark i is answered with
the mark's class at rate w, else with its own class (``wrong`` of these misses: with some other class). The exact test
is applied to 1,000 such tables of answers. Known value: ten classes, 16 marks, WSR 0.9: one carrier a mark, 16 queries
in all, has a power above 99 %.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 1e-6 | ours |
| w | ``wsr`` | - | measured, or what one fears is left after an attack |
| q | ``null_rate`` | 0.1 | ours: 1/(K - 1) with keyed labels; with a fixed target what the decoys give |
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from indelible.base.errors import InputError
from indelible.base.records import JsonFields
from indelible.keys.codebook import default_marks
from indelible.verification.statistics.codebook import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    sequential_factor,
    smallest_p_value,
)
from indelible.verification.statistics.exact_tests import binomial_tail

_MOST = 10_000
_DRAWS = 1000
_MOST_CARRIERS = 1024


@dataclass(frozen=True, kw_only=True)
class QueryPlan(JsonFields):
    """How many key samples to ask, and how many hits make p <= alpha (keyed labels: if no answer is the true class)."""

    queries: int
    hits: int
    power: float
    wsr: float
    alpha: float
    null_rate: float


def needed_hits(trials: int, null_rate: float, alpha: float) -> int | None:
    """Return the fewest hits of ``trials`` with p <= alpha; None if not even all are enough."""
    # The tail falls with the hits: bisect for the first that is small enough.
    fewest = bisect_left(range(trials + 1), True, key=lambda hits: binomial_tail(hits, trials, null_rate) <= alpha)
    return None if fewest > trials else fewest


def power_of(queries: int, *, wsr: float, null_rate: float, alpha: float) -> float:
    """Return the chance that ``queries`` key samples give p <= alpha on a model of success rate ``wsr``, exactly."""
    hits = needed_hits(queries, null_rate, alpha)
    return 0.0 if hits is None else binomial_tail(hits, queries, wsr)


def plan(wsr: float, *, alpha: float = 1e-6, power: float = 0.99, null_rate: float = 0.1) -> QueryPlan:
    """Return the fewest queries with the wanted power; arguments as in :func:`power_of`."""
    for name, value in (("alpha", alpha), ("power", power), ("null_rate", null_rate)):
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} must lie between 0 and 1, got {value}.")
    if not null_rate < wsr <= 1.0:
        raise InputError(
            f"a WSR of {wsr} cannot be told from a null rate of {null_rate}: it must be larger, and at most 1."
        )
    # Not even certain hits reach alpha with fewer; the epsilon keeps an exact power of the rate on its own side.
    queries = max(1, math.ceil(math.log(alpha) / math.log(null_rate) - 1e-9))
    while (reached := power_of(queries, wsr=wsr, null_rate=null_rate, alpha=alpha)) < power:
        queries += 1
        if queries > _MOST:
            raise InputError(f"a WSR of {wsr} over a null rate of {null_rate} takes more than {_MOST} queries.")
    hits = needed_hits(queries, null_rate, alpha)
    return QueryPlan(
        queries=queries, hits=queries if hits is None else hits, power=reached, wsr=wsr, alpha=alpha,
        null_rate=null_rate,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CodebookPlan(JsonFields):
    """How many carriers to ask with every mark, and how many images with a mark that makes in all."""

    carriers: int
    queries: int
    power: float
    wsr: float
    classes: int
    marks: int
    alpha: float


def codebook_plan(
    wsr: float, *, classes: int, marks: int | None = None, alpha: float = 1e-6, power: float = 0.99,
    wrong: float = 0.0, sequential: bool = False, draws: int = _DRAWS,
) -> CodebookPlan:  # fmt: skip
    """Return the fewest carriers of each mark with the wanted power, by ``draws`` simulated models.

    ``marks`` is by default what a key of so many classes has; ``wrong`` is the share of the misses that are answered
    with a wrong class. Of a ``sequential`` test, ``queries`` is the most that it asks.
    """
    if classes < 2:
        raise InputError(f"a task has 2 classes or more, got {classes}.")
    count = default_marks(classes) if marks is None else marks
    if not 0.0 < power < 1.0:
        raise InputError(f"power must lie between 0 and 1, got {power}.")
    settings: dict[str, Any] = {
        "wsr": wsr, "classes": classes, "marks": count, "alpha": alpha, "wrong": wrong, "sequential": sequential,
        "draws": draws,
    }  # fmt: skip
    enough, step = 1, 1
    while (reached := codebook_power(enough, least=power, **settings)) < power:
        enough, step = 2 * enough, enough
        if enough > _MOST_CARRIERS:
            raise InputError(
                f"a WSR of {wsr} over {classes} classes takes more than {_MOST_CARRIERS} carriers per mark. Plan for a "
                "larger WSR."
            )
    while step > 1:  # between the last that was too few and the first that was enough
        step //= 2
        fewer = codebook_power(enough - step, least=power, **settings)
        if fewer >= power:
            enough, reached = enough - step, fewer
    return CodebookPlan(
        carriers=enough, queries=enough * count, power=reached, wsr=wsr, classes=classes, marks=count, alpha=alpha,
    )  # fmt: skip


def codebook_power(
    carriers: int, *, wsr: float, classes: int, marks: int, alpha: float = 1e-6, wrong: float = 0.0,
    sequential: bool = False, least: float = 0.0, draws: int = _DRAWS,
) -> float:  # fmt: skip
    """Return the share of simulated models with p <= alpha; 0 once it cannot be ``least`` any more."""
    if not 0.0 < wsr <= 1.0:
        raise InputError(f"a WSR lies above 0 and is at most 1, got {wsr}.")
    if not 0.0 <= wrong <= 1.0:
        raise InputError(f"wrong is a share in [0, 1], got {wrong}.")
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, got {alpha}.")
    if min(marks, carriers) < 1:
        raise InputError(f"a plan takes one mark and one carrier or more, got {marks} and {carriers}.")
    if smallest_p_value(classes, marks) > alpha:
        raise InputError(
            f"{marks} marks over {classes} classes give p = {smallest_p_value(classes, marks):.1g} at the least, which "
            f"is above alpha = {alpha:g}. Plan for more marks, or a larger alpha."
        )
    shown = 0
    for number in range(draws):
        counts, drawn = _simulated(np.random.default_rng(number), carriers, wsr, classes, marks, wrong)
        if sequential:
            shown += _reaches(counts, drawn, alpha)
        else:
            shown += codebook_p_value(codebook_scores(counts), drawn) <= alpha
        if shown + draws - number - 1 < least * draws:
            return 0.0
    return shown / draws


def _simulated(
    random: np.random.Generator, carriers: int, wsr: float, classes: int, marks: int, wrong: float
) -> tuple[Integers, Integers]:
    """Return N_i(c) of one model, and the classes of the marks."""
    true, drawn = random.integers(classes, size=carriers), random.integers(classes, size=marks)
    other = (true + random.integers(1, classes, size=(marks, carriers))) % classes
    missed = np.where(random.random((marks, carriers)) < wrong, other, true)
    answers = np.where(random.random((marks, carriers)) < wsr, drawn[:, None], missed)
    return answer_counts(answers, true, classes), drawn


def _reaches(counts: Integers, drawn: Integers, alpha: float) -> bool:
    """Tell whether the capital ever reaches 1 / alpha, mark by mark."""
    capital = 1.0
    for mark, label in enumerate(drawn.tolist()):
        capital *= sequential_factor(counts[mark], counts[:mark], label)
        if capital >= 1.0 / alpha:
            return True
    return False
