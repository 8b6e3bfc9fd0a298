"""The exact binomial test, its null rate bounded by decoys.

The question: how likely are this many hits if the model never saw the key? A fixed target class has no null rate of
1/K - any model may send all marked images to one class, and some keys hit by their nature more often than others. So
the null rate is measured on decoys: samples marked with other secrets, drawn exactly as the key's. The upper confidence
limit (Clopper and Pearson, 1934) of the *worst* decoy goes into an exact binomial test, and the chance that any decoy's
limit is too low is added to the p-value.

    p = P[Bin(n, q) >= hits] + miss,   q = max(floor, largest upper limit of the N decoys at confidence 1 - miss / N)

Why a floor. Keys differ: some texts send several times as many images to a class as others do (docs/threat-model.md).
Twenty decoys bound an average key, not one that was picked among hundreds because it does well on other people's
models. Of 200 texts, the best sent 46 % of the images of other classes to one class on one of 54 unmarked models, 25 %
on average. The floor is an allowance, not a theorem.
"""

from collections.abc import Sequence

from scipy.special import betainc, betainccinv

from indelible.base.errors import InputError

__all__ = ["FLOOR", "binomial_tail", "bounded_binomial", "bounded_rate", "check_counts", "upper_limit"]

# The least that the null rate of a fixed target is taken to be.
FLOOR = 0.5


def upper_limit(hits: int, trials: int, miss: float) -> float:
    """Return the Clopper-Pearson upper limit of a rate: too low with probability at most ``miss``."""
    check_counts(hits, trials)
    return 1.0 if hits == trials else float(betainccinv(hits + 1, trials - hits, miss))


def binomial_tail(hits: int, trials: int, rate: float) -> float:
    """Return P[Bin(trials, rate) >= hits], exactly."""
    check_counts(hits, trials)
    # The tail as an incomplete beta function: exact far into the tail, and without scipy.stats' slow import.
    return 1.0 if hits == 0 else float(betainc(hits, trials - hits + 1, rate))


def bounded_rate(decoys: Sequence[tuple[int, int]], miss: float, floor: float = FLOOR) -> float:
    """Return the bound on the null rate that decoys give; arguments as in :func:`bounded_binomial`."""
    if not decoys:
        raise InputError("the null rate is bounded by decoys, but there are none. Ask at least one decoy key.")
    return max(floor, *(upper_limit(found, asked, miss / len(decoys)) for found, asked in decoys))


def bounded_binomial(
    hits: int, trials: int, decoys: Sequence[tuple[int, int]], miss: float, floor: float = FLOOR
) -> tuple[float, float]:
    """Return (p-value, bound on the null rate) of an exact binomial test whose null rate is bounded by decoys.

    Args:
        hits: Key samples answered with their labels.
        trials: Key samples asked.
        decoys: (hits, trials) of each decoy key.
        miss: Chance that a decoy's limit is too low, over all decoys together.
        floor: The least that the null rate is taken to be.
    """
    rate = bounded_rate(decoys, miss, floor)
    return min(1.0, binomial_tail(hits, trials, rate) + miss), rate


def check_counts(hits: int, trials: int) -> None:
    """Refuse what cannot be so many hits of so many trials."""
    if not 0 <= hits <= trials or trials < 1:
        raise InputError(f"{hits} hits of {trials} trials are not a count. Ask at least one query.")
