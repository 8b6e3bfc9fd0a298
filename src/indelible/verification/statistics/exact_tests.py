"""Exact tests of counted hits: binomial with decoys, keyed labels, McNemar's, the rank among decoys; Holm's correction.

**Binomial.** How likely are this many hits if the model never saw the key? A fixed target class has no null rate of
1/K - any model may send all marked images to one class, and some keys hit by their nature more often than others. So
the null rate is measured on decoys: samples marked with other secrets, drawn exactly as the key's. The upper confidence
limit (Clopper and Pearson, 1934) of the *worst* decoy goes into an exact binomial test, and the chance that any decoy's
limit is too low is added to the p-value.

    p = P[Bin(n, q) >= hits] + miss,   q = max(floor, largest upper limit of the N decoys at confidence 1 - miss / N)

Why a floor. Keys differ: some texts send several times as many images to a class as others do (docs/threat-model.md).
Twenty decoys bound an average key, not one that was picked among hundreds because it does well on other people's
models. Of 200 texts, the best sent 46 % of the images of other classes to one class on one of 54 unmarked models, 25 %
on average. The floor is an allowance, not a theorem.

**Keyed labels.** Every sample has a label drawn uniformly from the K - 1 classes that are not its true one,
independently of all others. Fix the answers of a model that does not depend on those draws. A sample answered with its
true class cannot hit. Each of the m others hits with probability 1 / (K - 1), independently. So, given the answers,

    hits ~ Bin(m, 1 / (K - 1)),    p = P[Bin(m, 1 / (K - 1)) >= hits]

exactly: for a model that answers one class always, whose answers depend on each other, that was trained on the samples
themselves with other labels, or that adapts to what it has been asked. Samples without a true class (images of another
domain) can be answered with any of K classes: m is all of them and the rate 1 / K. The *rareness* R = -log2 p, in bits,
is the measure of ROSE (Kallas and Furon, WIFS 2022): whoever draws secrets until one fits as well must expect to draw
2^R of them.

**McNemar's test** (1947; the exact form is a sign test), the same carriers with and without the mark. If the mark makes
no difference to the model, a carrier's answer becomes a hit, or stops being one, with the same chance:

    p = P[Bin(gained + lost, 1/2) >= gained]

A model that favours the target class gains nothing. But an unmarked model may well react to *any* text or noise: a
small p alone shows that this mark does something, not that it was taught. So ``paired_finding`` also asks decoys.

**Rank among decoys.** A decoy key is derived as the key is, from another secret. To a model that never saw the key, all
N + 1 are exchangeable, and every rank of the key's hits is equally likely. Ties count against it.

    p = (1 + #{decoys with at least as many hits}) / (N + 1)

Nothing else is assumed: no null rate, no independence of queries. The price is that p cannot be below 1 / (N + 1).
(Phipson and Smyth, "Permutation P-values Should Never Be Zero", 2010, on the one that is added.)

**Holm's correction** ("A Simple Sequentially Rejective Multiple Test Procedure", 1979): several keys or suspects, one
error rate for all of them together, whatever the dependence between them. With p_(1) <= ... <= p_(m),

    adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j))

**Fisher's method** ("Statistical Methods for Research Workers", 1925): one p-value for several tests, each of which is
valid whatever the earlier ones gave.

    p = P[chi-squared with 2m degrees of freedom >= -2 log x] = x sum_(k < m) (-log x)^k / k!,  x = p_1 ... p_m
"""

import math
import sys
from collections.abc import Sequence

from scipy.special import betainc, betainccinv, gammaincc

from indelible.base.errors import InputError

# The least that the null rate of a fixed target is taken to be.
FLOOR = 0.5


def upper_limit(hits: int, trials: int, miss: float) -> float:
    """Return the Clopper-Pearson upper limit of a rate: too low with probability at most ``miss``."""
    _check_counts(hits, trials)
    return 1.0 if hits == trials else float(betainccinv(hits + 1, trials - hits, miss))


def binomial_tail(hits: int, trials: int, rate: float) -> float:
    """Return P[Bin(trials, rate) >= hits], exactly."""
    _check_counts(hits, trials)
    return 1.0 if hits == 0 else float(betainc(hits, trials - hits + 1, rate))


def bounded_binomial(
    hits: int, trials: int, decoys: Sequence[tuple[int, int]], miss: float, floor: float = FLOOR
) -> tuple[float, float]:
    """Return (p-value, bound on the null rate) of an exact binomial test whose null rate is bounded by decoys.

    ``decoys`` are the (hits, trials) of each; ``miss`` is the chance that the limit of any of them is too low.
    """
    if not decoys:
        raise InputError("the null rate is bounded by decoys, but there are none. Ask at least one decoy key.")
    rate = max(floor, *(upper_limit(found, asked, miss / len(decoys)) for found, asked in decoys))
    return min(1.0, binomial_tail(hits, trials, rate) + miss), rate


def _check_counts(hits: int, trials: int) -> None:
    if not 0 <= hits <= trials or trials < 1:
        raise InputError(f"{hits} hits of {trials} trials are not a count. Ask at least one query.")


def rareness(p_value: float) -> float:
    """Return R = -log2 p in bits; of a p-value too small for a number, the least that it can be (some 1,022 bits)."""
    return max(0.0, -math.log2(max(p_value, sys.float_info.min)))


def keyed_rate(classes: int, *, with_truth: bool) -> float:
    """Return the chance of a hit for an answer that could be one: 1/(K - 1) beside a true class, 1/K without."""
    if classes < 3:
        raise InputError(f"keyed labels need 3 classes or more, got {classes}.")
    return 1.0 / (classes - 1 if with_truth else classes)


def keyed_p_value(hits: int, open_: int, classes: int, *, with_truth: bool) -> float:
    """Return the exact p-value of ``hits`` among m = ``open_`` samples that were not answered with their true class."""
    rate = keyed_rate(classes, with_truth=with_truth)
    return 1.0 if hits == open_ == 0 else binomial_tail(hits, open_, rate)


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact one-sided p-value of carriers that the mark turned into hits, and away; 1 if it changed none."""
    if gained < 0 or lost < 0:
        raise InputError(f"{gained} gained and {lost} lost are not counts.")
    return 1.0 if gained + lost == 0 else binomial_tail(gained, gained + lost, 0.5)


def rank_p_value(hits: int, decoys: Sequence[int]) -> float:
    """Return the p-value of ``hits`` among the hits of decoys, all asked equally many samples."""
    if not decoys:
        raise InputError("a rank is taken among decoys, but there are none. Ask at least one decoy key.")
    return (1 + sum(found >= hits for found in decoys)) / (len(decoys) + 1)


def decoys_for(alpha: float) -> int:
    """Return the fewest decoys with which a p-value of ``alpha`` can be reached."""
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, got {alpha}.")
    return max(1, math.ceil(1.0 / alpha - 1.0 - 1e-9))


def fisher_p_value(p_values: Sequence[float]) -> float:
    """Return one p-value for tests that are each valid whatever the earlier ones gave."""
    return float(gammaincc(len(p_values), -sum(math.log(value) for value in p_values)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values, in the order that they came in."""
    if any(not 0.0 <= value <= 1.0 for value in p_values):
        raise InputError(f"p-values lie in [0, 1], got {list(p_values)}.")
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, running = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = running
    return adjusted
