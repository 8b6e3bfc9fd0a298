"""The verdict of a claim, from counts alone: what an auditor computes again.

| test | null rate | for |
|---|---|---|
| ``binomial, worst of 20 decoys`` | upper limit of the worst decoy's hit rate, as in :mod:`indelible.verify` | others |
| ``binomial, keyed labels`` | that of the draw of the labels (:mod:`indelible.verify.statistics.keyed`) | keyed |

The decoys of a claim are keys that its challenge derives; they are drawn on the committed carriers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from indelible.base.errors import InputError
from indelible.verify.statistics import bounded_binomial, keyed_p_value, keyed_rate

__all__ = ["KEYED", "TEST", "TESTS", "decide", "same", "test_of"]

TEST, KEYED = "binomial, worst of 20 decoys", "binomial, keyed labels"
TESTS = (TEST, KEYED)
# The chance that the decoys' limit is wrong is a tenth of alpha, as in every verdict.
_MISS_SHARE = 0.1
_TOLERANCE = 1e-6


def test_of(key: Mapping[str, Any]) -> str:
    """Return the test that a key's settings call for."""
    return KEYED if key.get("labels") == "keyed" else TEST


def decide(
    test: str, hits: int, trials: int, decoys: Sequence[tuple[int, int]], *, alpha: float, classes: int,
    free: int | None = None, with_truth: bool = True, literal: bool = False, untargeted: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the verdict as JSON values.

    Args:
        test: One of :data:`TESTS`.
        hits: Opened samples answered with their labels; untargeted ones, with another class than their carrier's.
        trials: Opened samples.
        decoys: (hits, trials) of each decoy key.
        alpha: Level of the decision.
        classes: Classes of the task.
        free: Keyed labels: samples that were not answered with their true class; the others could not hit.
        with_truth: Keyed labels: samples have a true class.
        literal: The marks are the paper's public ones.
        untargeted: The samples are to be answered wrongly, with whichever class.
    """
    decoy_rate: float | None = None
    if test == KEYED:
        null_rate = keyed_rate(classes, with_truth=with_truth)
        p_value = keyed_p_value(hits, trials if free is None else free, classes, with_truth=with_truth)
    elif test == TEST:
        p_value, null_rate = bounded_binomial(hits, trials, decoys, alpha * _MISS_SHARE)
        decoy_rate = max(found / asked for found, asked in decoys)
    else:
        raise InputError(f"unknown test {test!r:.80}: this version knows {', '.join(TESTS)}.")
    owned = p_value <= alpha
    return {
        "test": test, "alpha": alpha, "hits": hits, "trials": trials, "wsr": hits / trials, "decoy_rate": decoy_rate,
        "null_rate": null_rate, "p_value": p_value, "owned": owned,
        "queries": trials + sum(asked for _, asked in decoys),
        "sentence": _sentence(owned, hits, trials, p_value, null_rate, literal=literal, untargeted=untargeted),
    }  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Tell whether two verdicts agree; numbers may differ by rounding, as between two machines."""
    # JSON has one kind of number: 1.0 comes back as 1. True and false are none.
    if {type(one), type(other)} <= {int, float}:
        return bool(abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() - {"sentence"}
        return names == other.keys() - {"sentence"} and all(same(one[name], other[name]) for name in names)
    return type(one) is type(other) and bool(one == other)


def _sentence(
    owned: bool, hits: int, trials: int, p_value: float, null_rate: float, *, literal: bool, untargeted: bool
) -> str:
    answers = "another class than their carriers'" if untargeted else "their committed labels"
    found = (
        f"{hits} of {trials} opened samples were answered with {answers}; a model that never saw the key "
        f"does that with probability at most {p_value:.1e} (chance of a hit at most {null_rate:.3f})."
    )
    weight = " The marks are the paper's public ones: this carries no weight against forgery." * literal
    if not owned:
        return f"Not shown to be derived from the committed model: {found}{weight}"
    return f"Derived from a model that carries the committed watermark: {found}{weight}"
