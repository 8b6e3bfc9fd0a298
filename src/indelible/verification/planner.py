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

With a codebook, a session with a server is planned before its first query: every mark is asked on as many carriers as
the wanted power takes. Of other keys, all samples and decoys are asked, or as many as the user says.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 1e-6 | ours |
| w | ``wsr`` | of a session 0.1 | ours: what an attack may have left |
| power | ``power`` | 0.99 | ours |
| q | ``null_rate`` | 0.1 | ours: 1/(K - 1) with keyed labels; with a fixed target what the decoys give |
"""

import itertools
import operator
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indelible.base.checks import check_settings
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.records import JsonFields
from indelible.keys.codebook import default_marks
from indelible.keys.key import Key
from indelible.verification.procedures import procedure_for
from indelible.verification.statistics.codebook_tests import (
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


def _check_shares(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} must lie between 0 and 1, got {value}.")


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


def plan(wsr: float, *, alpha: float = 1e-6, power: float = 0.99, null_rate: float = 0.1) -> QueryPlan:
    """Return the fewest queries that give p <= alpha on a model of success rate ``wsr`` with the wanted power."""
    _check_shares(alpha=alpha, power=power, null_rate=null_rate)
    if not null_rate < wsr <= 1.0:
        raise InputError(
            f"a WSR of {wsr} cannot be told from a null rate of {null_rate}: it must be larger, and at most 1."
        )
    for queries in range(1, _MOST + 1):
        hits = needed_hits(queries, null_rate, alpha)
        if hits is not None and (reached := binomial_tail(hits, queries, wsr)) >= power:
            return QueryPlan(queries=queries, hits=hits, power=reached, wsr=wsr, alpha=alpha, null_rate=null_rate)
    raise InputError(f"a WSR of {wsr} over a null rate of {null_rate} takes more than {_MOST} queries.")


@dataclass(frozen=True, kw_only=True)
class CodebookPlan(JsonFields):
    """How many carriers to ask with every mark, and the power that this gives at a WSR of ``wsr``.

    ``queries`` are all together: the carriers with every mark, and ``clean`` images without one, for BA. Of the test
    ``sequential``, they are the most that it asks.
    """

    test: str
    marks: int
    carriers: int
    clean: int = 0
    queries: int
    power: float
    wsr: float
    classes: int
    alpha: float

    @property
    def sentence(self) -> str:
        """The plan of a session in words."""
        most, asked = "at most " if self.test == "sequential" else "", self.queries - self.clean
        clean = f", {self.clean} clean images" if self.clean else ""
        return (
            f"plan: {most}{asked} samples of the key{clean}: {self.queries} queries. A suspect with a WSR of "
            f"{100 * self.wsr:g} % gets its verdict at alpha {self.alpha:g} with probability {self.power:.3f}."
        )

    @property
    def options(self) -> dict[str, Any]:
        """The plan as options of :func:`indelible.verify`."""
        return {"procedure": self.test, "alpha": self.alpha, "max_samples": self.queries - self.clean}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "CodebookPlan":
        """Rebuild a plan, as a query log holds it."""
        try:
            check_settings(cls, value, "field of a plan")
            return cls(**value)
        except (InputError, TypeError) as error:
            raise DamagedFileError("this is not the plan of a session. Ask anew, with another log.") from error


def codebook_plan(
    wsr: float, *, classes: int, marks: int | None = None, alpha: float = 1e-6, power: float = 0.99,
    wrong: float = 0.0, sequential: bool = False, draws: int = _DRAWS,
) -> CodebookPlan:  # fmt: skip
    """Return the fewest carriers of each mark with the wanted power, by ``draws`` simulated models.

    ``marks`` is by default what a key of so many classes has; ``wrong`` is the share of the misses that are answered
    with a wrong class.
    """
    if classes < 2:
        raise InputError(f"a task has 2 classes or more, got {classes}.")
    count = default_marks(classes) if marks is None else marks
    _check_shares(power=power)
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
        test="sequential" if sequential else "codebook", marks=count, carriers=enough, queries=enough * count,
        power=reached, wsr=wsr, classes=classes, alpha=alpha,
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
    _check_shares(alpha=alpha)
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
        if sequential:  # does the capital ever reach 1 / alpha, mark by mark?
            factors = (sequential_factor(counts[mark], counts[:mark], drawn[mark]) for mark in range(marks))
            shown += any(capital >= 1.0 / alpha for capital in itertools.accumulate(factors, operator.mul))
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


def session_plan(
    key: Key, available: int, *, procedure: str = "auto", alpha: float = 1e-6, wsr: float | None = None,
    power: float = 0.99, max_samples: int | None = None, clean: int = 0, wrong: float = 0.0,
) -> CodebookPlan | None:  # fmt: skip
    """Return what to ask; None for other keys than a codebook, and for ``relearning``.

    Of the key, ``available`` samples are there; where more are needed, all are asked, and ``power`` says less.
    ``max_samples`` takes the place of what the plan would give. The other settings are those of :func:`codebook_plan`.
    """
    name = procedure_for(procedure, key).name
    if key.marks is None or name == "relearning":
        return None
    most, marks = available if max_samples is None else max_samples, key.marks
    if not marks <= most <= available:
        raise InputError(
            f"a codebook asks every one of its {marks} marks: at least {marks} queries, got {most}. Here {available} "
            "are possible."
        )
    rate, sequential = 0.1 if wsr is None else wsr, name == "sequential"
    settings: dict[str, Any] = {
        "classes": key.classes, "marks": marks, "alpha": alpha, "wrong": wrong, "sequential": sequential
    }  # fmt: skip
    each = most // marks
    found = codebook_plan(rate, power=power, **settings) if max_samples is None else None
    if found is None or found.carriers > each:
        reached = codebook_power(each, wsr=rate, **settings)
        found = CodebookPlan(
            test=name, marks=marks, carriers=each, queries=each * marks, power=reached, wsr=rate, classes=key.classes,
            alpha=alpha,
        )  # fmt: skip
    return replace(found, clean=clean, queries=found.queries + clean)
