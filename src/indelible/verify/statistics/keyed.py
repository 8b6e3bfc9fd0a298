"""The exact test of keyed labels: its randomness is that of the labels, so it holds for any model whatever.

Every sample has a label drawn uniformly from the K - 1 classes that are not its true one, independently of all others.
Fix the answers of a model that does not depend on those draws. A sample answered with its true class cannot hit. Each
of the m others hits with probability 1 / (K - 1), independently. So, given the answers,

    hits ~ Bin(m, 1 / (K - 1)),    p = P[Bin(m, 1 / (K - 1)) >= hits]

exactly: for a model that answers one class always, whose answers depend on each other, that was trained on the samples
themselves with other labels, or that adapts to what it has been asked. Samples without a true class (images of another
domain) can be answered with any of K classes: m is all of them and the rate 1 / K.

| symbol | name |
|---|---|
| m | ``open_`` : samples that were not answered with their true class |
| K | ``classes`` |

The *rareness* R = -log2 p, in bits, is the measure of ROSE (Kallas and Furon, WIFS 2022): whoever draws secrets until
one fits as well must expect to draw 2^R of them.
"""

import math
import sys

from indelible.base.errors import InputError
from indelible.verify.statistics.binomial import binomial_tail, check_counts

__all__ = ["keyed_p_value", "keyed_rate", "rareness"]


def rareness(p_value: float) -> float:
    """Return R = -log2 p in bits; of a p-value too small for a number, the least that it can be (some 1,022 bits)."""
    return max(0.0, -math.log2(max(p_value, sys.float_info.min)))


def keyed_rate(classes: int, *, with_truth: bool) -> float:
    """Return the chance of a hit for an answer that could be one: 1/(K - 1) beside a true class, 1/K without."""
    if classes < 3:
        raise InputError(f"keyed labels need 3 classes or more, but there are {classes}.")
    return 1.0 / (classes - 1 if with_truth else classes)


def keyed_p_value(hits: int, open_: int, classes: int, *, with_truth: bool) -> float:
    """Return the exact p-value of ``hits`` among ``open_`` samples that were not answered with their true class."""
    rate = keyed_rate(classes, with_truth=with_truth)
    if open_ == 0 and hits == 0:
        return 1.0
    check_counts(hits, open_)
    return binomial_tail(hits, open_, rate)
