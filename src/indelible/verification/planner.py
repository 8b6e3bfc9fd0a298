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

A session with a server is planned as a whole, before its first query:

| test | the key's samples | decoys |
|---|---|---|
| ``codebook`` | every mark on as many carriers as the wanted power takes | none |
| ``keyed`` | n with the wanted power at a null rate of 1/(K - 1) | none |
| ``binomial`` | n with the wanted power at the floor of the null rate | m samples of each decoy key |
| ``sequential`` | at most n; on average fewer | none with a codebook; else as ``binomial``, once the level is reached |

m is the fewest for which the limits of all decoys stay below the floor, if the suspect answers each with the key's
label at the rate ``decoy_rate``. A suspect that does so more often can then not be told from one that reads any mark,
and the verdict is negative, never wrong. All is exact: binomial tails, and for the e-process the chance of ever having
reached the level, by recursion over the hits. Only a codebook is planned by simulation.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 1e-6 | ours |
| w | ``wsr`` | of a session 0.7; 0.5 with keyed labels; 0.1 with a codebook | ours: what an attack may have left |
| power | ``power`` | 0.99 | ours |
| q | ``null_rate`` | 0.1 | ours: 1/(K - 1) with keyed labels; with a fixed target what the decoys give |
| r | ``decoy_rate`` | 0.2 | ours |
"""

import itertools
import math
import operator
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from indelible.base.checks import check_settings
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.records import JsonFields
from indelible.keys.codebook import default_marks
from indelible.keys.key import Key
from indelible.verification.findings import MISS_SHARE
from indelible.verification.procedures import procedure_for
from indelible.verification.statistics.codebook import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    sequential_factor,
    smallest_p_value,
)
from indelible.verification.statistics.exact_tests import FLOOR, binomial_tail, keyed_rate
from indelible.verification.statistics.sequential import log_e_value
from indelible.verification.suspect_queries import DECOYS

_MOST = 10_000
_DRAWS = 1000
_MOST_CARRIERS = 1024
_WSR = {"codebook": 0.1, "fixed": 0.7, "keyed": 0.5, "untargeted": 0.7}
_POWER = 0.99
_DECOY_RATE = 0.2
# Of the chance to miss a verdict, the share that decoys with unlucky limits may have.
_DECOY_SHARE = 0.1
_MOST_DECOY_SAMPLES = 1000


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


def power_of(queries: int, *, wsr: float, null_rate: float, alpha: float) -> float:
    """Return the chance that ``queries`` key samples give p <= alpha on a model of success rate ``wsr``, exactly."""
    hits = needed_hits(queries, null_rate, alpha)
    return 0.0 if hits is None else binomial_tail(hits, queries, wsr)


def plan(wsr: float, *, alpha: float = 1e-6, power: float = 0.99, null_rate: float = 0.1) -> QueryPlan:
    """Return the fewest queries with the wanted power; arguments as in :func:`power_of`."""
    _check_shares(alpha=alpha, power=power, null_rate=null_rate)
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


@dataclass(frozen=True, kw_only=True)
class SessionPlan(JsonFields):
    """What a session asks, at most, and the power that this gives if the suspect answers as was planned for.

    ``queries`` are all together: ``samples`` of the key, ``decoy_samples`` of each of ``decoys`` keys, and ``clean``
    images without a mark, for BA. ``wsr`` and ``decoy_rate`` (0 without decoys) are what was planned for.
    """

    test: str
    samples: int
    decoys: int
    decoy_samples: int
    clean: int
    queries: int
    power: float
    wsr: float
    decoy_rate: float
    null_rate: float
    alpha: float

    @property
    def sentence(self) -> str:
        """The plan in words."""
        most = "at most " if self.test == "sequential" else ""
        decoys = f", {self.decoys} decoy keys of {self.decoy_samples} samples" if self.decoys else ""
        clean = f", {self.clean} clean images" if self.clean else ""
        return (
            f"plan: {most}{self.samples} samples of the key{decoys}{clean}: {self.queries} queries. A suspect with a "
            f"WSR of {100 * self.wsr:g} % gets its verdict at alpha {self.alpha:g} with probability {self.power:.3f}."
        )

    @property
    def options(self) -> dict[str, Any]:
        """The plan as options of :func:`indelible.verify`."""
        numbers = {"test": self.test, "alpha": self.alpha, "queries": self.samples}
        return numbers | ({"decoys": self.decoys, "decoy_samples": self.decoy_samples} if self.decoys else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SessionPlan":
        """Rebuild a plan, as a query log holds it."""
        try:
            check_settings(cls, value, "field of a plan")
            return cls(**value)
        except (InputError, TypeError) as error:
            raise DamagedFileError("this is not the plan of a session. Ask anew, with another log.") from error


def session_plan(
    key: Key, available: int, *, test: str = "auto", alpha: float = 1e-6, wsr: float | None = None,
    power: float = _POWER, decoy_rate: float = _DECOY_RATE, decoys: int | None = None, samples: int | None = None,
    decoy_samples: int | None = None, clean: int = 0, wrong: float = 0.0,
) -> SessionPlan | None:  # fmt: skip
    """Return what to ask; None for the tests ``decoys`` and ``paired``, which ask all there is.

    Of the key, ``available`` samples are there; where more are needed, all are asked, and ``power`` says less.
    ``samples`` and ``decoy_samples`` take the place of what the plan would give. ``wrong`` is, of a codebook, the share
    of misses that the suspect answers with a wrong class. The other settings are those of the module's header.
    """
    name = procedure_for(test, key).name
    if name not in {"codebook", "keyed", "binomial", "sequential"}:
        return None
    _check_shares(alpha=alpha, power=power)
    if not 0.0 <= decoy_rate < 1.0:
        raise InputError(f"a decoy rate lies in [0, 1), got {decoy_rate}.")
    if any(number is not None and number < 1 for number in (available, decoys, samples, decoy_samples)):
        raise InputError("samples, decoys and decoy_samples must be at least 1.")
    if samples is not None and samples > available:
        raise InputError(f"the key has {available} samples, got {samples}. Give a smaller number.")
    rate, count, each, sure, null = _WSR[key.labels] if wsr is None else wsr, 0, 0, 1.0, 1.0 / key.classes
    most, free = available if samples is None else samples, samples is None
    if key.labels == "codebook":
        sequential = name == "sequential"
        asked, reached = _marked(
            key.marks or 1, most, free, power, wsr=rate, classes=key.classes, alpha=alpha, wrong=wrong,
            sequential=sequential,
        )  # fmt: skip
    else:
        null, level = FLOOR, alpha * (1.0 - MISS_SHARE)
        if key.labels == "keyed":
            null, level = keyed_rate(key.classes, with_truth=key.kind != "unrelated"), alpha
        else:
            count = DECOYS if decoys is None else decoys
            miss, wanted = alpha * MISS_SHARE / count, 1.0 - _DECOY_SHARE * (1.0 - power)
            each = min(available, decoy_samples or decoy_samples_for(decoy_rate, count, miss, power=wanted))
            sure = _within(each, decoy_rate, miss) ** count
        if not null < rate <= 1.0:
            raise InputError(
                f"a WSR of {rate} cannot be told from a null rate of {null:.3f}: plan for a larger one, at most 1."
            )
        wanted = min(0.9999, power / max(sure, power))
        if name == "sequential":
            chances = sequential_power(most, wsr=rate, null_rate=null, alpha=level)
            asked = next((n for n, chance in enumerate(chances, 1) if free and chance >= wanted), most)
            reached = chances[asked - 1]
        else:
            needed = plan(rate, alpha=level, power=wanted, null_rate=null).queries if free else most
            asked = min(most, needed)
            reached = power_of(asked, wsr=rate, null_rate=null, alpha=level)
    return SessionPlan(
        test=name, samples=asked, decoys=count, decoy_samples=each, clean=clean,
        queries=asked + count * each + clean, power=reached * sure, wsr=rate,
        decoy_rate=decoy_rate if count else 0.0, null_rate=null, alpha=alpha,
    )  # fmt: skip


def _marked(marks: int, most: int, free: bool, power: float, **settings: Any) -> tuple[int, float]:
    """Return how many samples of a codebook are asked, as many of each mark, and the power that this gives."""
    each = most // marks
    if each < 1:
        raise InputError(
            f"a codebook asks every one of its {marks} marks: at least {marks} queries, got {most}. Allow more."
        )
    if free and (found := codebook_plan(marks=marks, power=power, **settings)).carriers <= each:
        return found.queries, found.power
    return each * marks, codebook_power(each, marks=marks, **settings)


def sequential_power(most: int, *, wsr: float, null_rate: float, alpha: float) -> list[float]:
    """Return the chance that the e-process has reached 1 / alpha within 1, 2, ... ``most`` queries, exactly."""
    going, reached, need, found = np.ones(1), 0.0, 0, []
    for trials in range(1, most + 1):
        # The chance of 0, 1, ... hits by now without having reached the level before.
        going = np.append(going * (1.0 - wsr), 0.0) + np.append(0.0, going * wsr)
        while need <= trials and log_e_value(need, trials, null_rate) < -math.log(alpha):
            need += 1  # rises with the trials
        reached += float(going[need:].sum())
        going[need:] = 0.0
        found.append(reached)
    return found


def decoy_samples_for(decoy_rate: float, decoys: int, miss: float, *, power: float) -> int:
    """Return the fewest samples of each decoy key for which all limits stay at the floor with probability ``power``.

    The suspect answers decoys with the key's label at ``decoy_rate``; ``miss`` is the chance that one limit is too low.
    """
    enough = (count for count in range(1, _MOST_DECOY_SAMPLES) if _within(count, decoy_rate, miss) ** decoys >= power)
    return next(enough, _MOST_DECOY_SAMPLES)


def _within(count: int, rate: float, miss: float) -> float:
    """Return the chance that the limit of a decoy with ``count`` samples is at most the floor."""
    # The limit at some hits is at most the floor if P[Bin(count, floor) <= hits] <= miss, that is, by symmetry of a
    # floor of one half, if so many misses are as unlikely.
    misses = needed_hits(count, 1.0 - FLOOR, miss)
    return 0.0 if misses is None else binomial_tail(misses, count, 1.0 - rate)
