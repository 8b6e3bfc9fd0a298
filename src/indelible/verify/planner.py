"""The planner: how many queries a wanted alpha and power take, before anything is asked.

A test that needs h(n) hits of n queries for p <= alpha finds a model of success rate w with power P[Bin(n, w) >= h(n)].
Power is a saw-tooth in n, since h(n) jumps: the plan is the smallest n that reaches the wanted power.

Known values, p <= 1e-6 at a null rate of 0.1: 14 of 30, 18 of 50 and 28 of 100 hits; for 99 % power 13 queries at WSR
0.9, 26 at 0.7, 54 at 0.5 and 178 at 0.3.

With keyed labels a miss that is the true class does not count as a trial (:mod:`indelible.verify.statistics.keyed`).
``wrong`` is the share of misses that are answered with some other wrong class; 1, the default, is the worst case.

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
from dataclasses import dataclass
from typing import Any

import numpy as np

from indelible.base.errors import InputError
from indelible.base.records import plain
from indelible.keys.codebook import default_marks
from indelible.verify.statistics import (
    Integers,
    answer_counts,
    binomial_tail,
    codebook_p_value,
    codebook_scores,
    sequential_factor,
    smallest_p_value,
)

__all__ = ["CodebookPlan", "Plan", "codebook_plan", "codebook_power", "needed_hits", "plan", "power_of"]

_MOST = 10_000
_DRAWS = 1000
_MOST_CARRIERS = 1024


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


@dataclass(frozen=True, kw_only=True)
class CodebookPlan:
    """What a verification with a codebook takes.

    Attributes:
        carriers: Images to ask with every mark.
        queries: Images with a mark in all: carriers times marks.
        power: Share of simulated models of success rate ``wsr`` whose p-value is at most alpha.
        wsr: The success rate planned for.
        classes: Classes of the task.
        marks: Marks of the key.
        alpha: Level of the decision.
    """

    carriers: int
    queries: int
    power: float
    wsr: float
    classes: int
    marks: int
    alpha: float

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def codebook_plan(
    wsr: float, *, classes: int, marks: int | None = None, alpha: float = 1e-6, power: float = 0.99,
    wrong: float = 0.0, sequential: bool = False, draws: int = _DRAWS,
) -> CodebookPlan:  # fmt: skip
    """Return the fewest carriers with the wanted power; other arguments as in :func:`codebook_power`.

    Args:
        wsr: Chance that a carrier with a mark is answered with the mark's class.
        classes: Classes of the task.
        marks: Marks of the key; by default what a key of so many classes has.
        alpha: Level of the decision.
        power: Wanted.
        wrong: Share of the misses that are answered with a wrong class.
        sequential: Plan for the sequential test; ``queries`` is then the most that it asks.
        draws: Models to simulate.
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
                f"a WSR of {wsr} over {classes} classes takes more than {_MOST_CARRIERS} carriers a mark. Plan for a "
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
    """Return the share of simulated models with p <= alpha; the same for the same arguments.

    Args:
        carriers: Images to ask with every mark.
        wsr: Chance that one is answered with the mark's class.
        classes: Classes of the task.
        marks: Marks of the key.
        alpha: Level of the decision.
        wrong: Share of the misses that are answered with a wrong class.
        sequential: Stop after the mark at which the level is reached.
        least: Give up, and return 0, once the share cannot be so large any more.
        draws: Models to simulate.
    """
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
