"""The rank of the key among decoys: exact for any model, any skew of its classes, any dependence of its answers.

A decoy key is derived as the key is, from another secret. To a model that never saw the key, the key is one more draw
of the same kind: all N + 1 are exchangeable, and every rank of the key's hits is equally likely. Ties count against it.

    p = (1 + #{decoys with at least as many hits}) / (N + 1)

Nothing else is assumed: no null rate, no independence of queries. The price is that p cannot be below 1 / (N + 1), so a
level of one in a million takes a million decoys. (Phipson and Smyth, "Permutation P-values Should Never Be Zero", 2010,
on the one that is added.)
"""

import math
from collections.abc import Sequence

from indelible.base.errors import InputError

__all__ = ["decoys_for", "rank_p_value"]


def rank_p_value(hits: int, decoys: Sequence[int]) -> float:
    """Return the p-value of ``hits`` among the hits of decoys, all asked equally many samples."""
    if not decoys:
        raise InputError("a rank is taken among decoys, but there are none. Ask at least one decoy key.")
    return (1 + sum(found >= hits for found in decoys)) / (len(decoys) + 1)


def decoys_for(alpha: float) -> int:
    """Return the fewest decoys with which a p-value of ``alpha`` can be reached."""
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, but is {alpha}.")
    fewest = math.ceil(1.0 / alpha - 1.0 - 1e-9)
    return max(1, fewest)
