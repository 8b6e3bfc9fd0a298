"""The exact test of a codebook: its randomness is that of the drawn classes, so it holds for any model whatever.

Every one of K marks is asked on n carriers. N_i(c) is how many carriers of mark i are answered c although their true
class is not c. The score of "mark i belongs to class c" is

    S_i(c) = K * N_i(c) - sum_j N_j(c)

the count less its average over all marks, so that a model that favours a class, or sends every text to one, gains
nothing. With the classes c_1 .. c_K that the secret drew, T = sum_i S_i(c_i).

Fix the answers of a model that never saw the key. They leave c_1 .. c_K uniform and independent over C classes, so that
T is distributed as a sum of K independent picks, one from each row of known integers:

    p = #{(c'_1 .. c'_K) : sum_i S_i(c'_i) >= T} / C^K

exactly. Nothing is assumed of the model: its answers may be skewed, depend on each other, be random, or adapt to what
it has been asked. The smallest p-value is C^-K.

How it is counted: the number of ways to reach each sum is a coefficient of a product of K polynomials. All coefficients
stand in one Python integer, each in a field wide enough for C^K, so that multiplying by a row of scores is C shifts and
additions of whole integers. No floating point, no simulation.

Sequential form. Given the earlier marks, E_i = g_i(c_i) / mean_c g_i(c) has mean 1 under the null for any g_i >= 0 of
the answers to mark i. The product over finished marks is a test martingale: one may stop after any mark, never inside
one. Here g_i(c) = MIX * mean_c M_i(c) + (1 - MIX) * M_i(c) with M_i(c) = max(0, N_i(c) - B(c)), where B(c) is the
average of N_j(c) over the earlier marks: what the model answers anyway.

| symbol | name | default | source |
|---|---|---|---|
| K, n, C | shape of ``answers``, ``classes`` | - | the key |
| MIX | ``_MIX`` | 0.05 | ours: what one mark can cost at most, a factor of 20 |
"""

import numpy as np
import numpy.typing as npt

from indelible.base.errors import InputError

__all__ = [
    "Integers",
    "answer_counts",
    "codebook_p_value",
    "codebook_scores",
    "held_marks",
    "sequential_factor",
    "smallest_p_value",
]

Integers = npt.NDArray[np.int64]
_MIX = 0.05


def answer_counts(answers: Integers, true: Integers | None, classes: int) -> Integers:
    """Return N_i(c): int64 (K, C).

    Args:
        answers: int64 (K, n), the answer to every carrier with every mark.
        true: int64 (n,) or (K, n), true classes of the carriers; None for images that belong to no class.
        classes: C.
    """
    marks = len(answers)
    counts = np.zeros((marks, classes), dtype=np.int64)
    valid = np.ones(answers.shape, dtype=bool) if true is None else answers != true
    for mark in range(marks):
        counts[mark] = np.bincount(answers[mark][valid[mark]], minlength=classes)
    return counts


def codebook_scores(counts: Integers) -> Integers:
    """Return S_i(c): int64 (K, C), for N_i(c) of the same shape."""
    scores: Integers = len(counts) * counts - counts.sum(0)
    return scores


def codebook_p_value(scores: Integers, drawn: Integers) -> float:
    """Return the exact p-value of the drawn classes.

    Args:
        scores: int64 (K, C), S_i(c).
        drawn: int64 (K,), the classes that the secret drew.
    """
    marks, classes = (int(side) for side in scores.shape)
    if drawn.shape != (marks,) or drawn.min() < 0 or drawn.max() >= classes:
        raise InputError(f"{marks} marks need as many classes from 0 to {classes - 1}, got {drawn.tolist()}.")
    lowest = scores.min(1)
    steps = scores - lowest[:, None]
    # A common factor only makes the integers longer.
    factor = max(1, int(np.gcd.reduce(steps, axis=None)))
    steps //= factor
    reached = int(steps[np.arange(marks), drawn].sum())
    total: int = classes**marks
    width = total.bit_length()
    ways = 1
    for row in steps.tolist():
        ways = sum(ways << step * width for step in row)
    return _tail(ways, reached, width) / total


def _tail(ways: int, first: int, width: int) -> int:
    """Add up the fields of ``ways`` from number ``first`` on; all of them together fit into one field."""
    rest = ways >> first * width
    # Halve the number of fields until one is left: adding fields cannot overflow, since their sum fits.
    fields = max(1, -(-rest.bit_length() // width))
    while fields > 1:
        half = -(-fields // 2)
        rest, fields = (rest & (1 << half * width) - 1) + (rest >> half * width), half
    return rest


def smallest_p_value(classes: int, marks: int) -> float:
    """Return C^-K."""
    ways: int = classes**marks
    return 1 / ways


def held_marks(scores: Integers, drawn: Integers) -> int:
    """Return how many marks have their own class on top: a score above those of all other classes."""
    own = scores[np.arange(len(scores)), drawn]
    others = scores.copy()
    others[np.arange(len(scores)), drawn] = np.iinfo(np.int64).min
    return int((own > others.max(1)).sum())


def sequential_factor(counts: Integers, earlier: Integers, drawn: int) -> float:
    """Return E_i of one finished mark.

    Args:
        counts: int64 (C,), N_i(c).
        earlier: int64 (i - 1, C), N_j(c) of the marks before it.
        drawn: The class of this mark.
    """
    usual = earlier.mean(0) if len(earlier) else np.zeros(len(counts))
    gain = np.maximum(0.0, counts - usual)
    mean = float(gain.mean())
    if mean <= 0.0:
        return 1.0  # nothing but what the model answers anyway: this mark says nothing
    return _MIX + (1.0 - _MIX) * float(gain[drawn]) / mean
