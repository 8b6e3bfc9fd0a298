"""An e-process: a test that may be looked at after every query, and stopped.

Ramdas, Grünwald, Vovk and Shafer, "Game-Theoretic Statistics and Safe Anytime-Valid Inference", Statistical Science
2023; the mixture of likelihood ratios is Robbins' (1970).

Null: whatever came before, the next query is a hit with probability at most q. A bet on a higher rate r multiplies the
capital by r / q at a hit and by (1 - r) / (1 - q) at a miss; under the null it does not grow on average. Capital spread
evenly over all rates r in (q, 1) has, after h hits in n queries, the value

    E = 1 / (1 - q) * integral_q^1 (r / q)^h ((1 - r) / (1 - q))^(n - h) dr
      = B(h + 1, n - h + 1) * (1 - I_q(h + 1, n - h + 1)) / (q^h (1 - q)^(n - h + 1))

No rate has to be guessed. By Ville's inequality the capital ever reaches 1 / alpha with probability at most alpha,
however often one looks, so that 1 / (largest E so far) is a p-value at any time.

| symbol | name |
|---|---|
| q | ``rate`` |
| h, n | ``hits``, ``trials`` |
"""

import math
from collections.abc import Sequence
from typing import Self

from scipy.special import betaincc, betaln

from indelible.base.errors import InputError


def log_e_value(hits: int, trials: int, rate: float) -> float:
    """Return log E after ``hits`` of ``trials`` queries under a null rate of at most ``rate``; 0 at the start."""
    if not 0 <= hits <= trials:
        raise InputError(f"{hits} hits of {trials} trials are not a count.")
    if not 0.0 < rate <= 1.0:
        raise InputError(f"the null rate must lie in (0, 1], got {rate}.")
    if rate == 1.0 or trials == 0:
        return 0.0  # nothing can be bet against a model that may hit always
    misses = trials - hits
    upper = float(betaincc(hits + 1, misses + 1, rate))
    if upper == 0.0:  # below the smallest number: the capital is gone
        return -math.inf
    mixture = float(betaln(hits + 1, misses + 1)) + math.log(upper)
    return mixture - hits * math.log(rate) - (misses + 1) * math.log1p(-rate)


class EProcess:
    """The capital of one run of queries; ``rate`` is q."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.hits = self.trials = 0
        self.log_e = log_e_value(0, 0, rate)
        self.log_peak = self.log_e

    @classmethod
    def of(cls, rate: float, trials: Sequence[bool]) -> Self:
        """Return the process after ``trials``."""
        process = cls(rate)
        for hit in trials:
            process.update(hit)
        return process

    def update(self, hit: bool) -> float:
        """Take one answer into account; return the p-value that holds now: 1 / the largest capital so far."""
        self.hits += hit
        self.trials += 1
        self.log_e = log_e_value(self.hits, self.trials, self.rate)
        self.log_peak = max(self.log_peak, self.log_e)
        return self.p_value

    def reachable(self, left: int) -> float:
        """Return the smallest p-value that ``left`` more queries can give: if all of them hit."""
        best = log_e_value(self.hits + left, self.trials + left, self.rate)  # a hit never makes the capital smaller
        return min(1.0, math.exp(-max(self.log_peak, best)))

    @property
    def p_value(self) -> float:
        """The p-value that holds now, however often it was looked at before."""
        return min(1.0, math.exp(-self.log_peak))

    @property
    def e_value(self) -> float:
        """The capital now; at most 1 on average under the null."""
        return math.exp(min(self.log_e, 700.0))
