"""The exact test of a codebook: its randomness is that of the drawn classes, so it holds for any model whatever.

Every one of K marks is asked on n carriers. N_i(c) is how many carriers of mark i are answered c although their true
class is not c. The score of "mark i belongs to class c" is

    R_i(c) = floor(16 * sqrt(N_i(c) + 1))
    S_i(c) = K * R_i(c) - sum_j R_j(c)

the root of the count less its average over all marks, so that a model that favours a class, or sends every text to
one, gains nothing. With the classes c_1 .. c_K that the secret drew, T = sum_i S_i(c_i).

Fix the answers of a model that never saw the key. They leave c_1 .. c_K uniform and independent over C classes, so that
T is distributed as a sum of K independent picks, one from each row of known integers:

    p = #{(c'_1 .. c'_K) : sum_i S_i(c'_i) >= T} / C^K

exactly. Nothing is assumed of the model: its answers may be skewed, depend on each other, be random, or adapt to what
it has been asked. The smallest p-value is C^-K.

How it is counted: a class loses max_c S_i(c) - S_i(c) against the best one of its row, and a draw is as good as the
secret's if its losses add up to no more. The number of ways to reach each sum of losses is a coefficient of a product
of K polynomials, cut off at the secret's own sum. All coefficients stand in one Python integer, each in a field wide
enough for C^K, so that multiplying by a row is a few shifts and additions of whole integers. No floating point, no
simulation.

Sequential form. Given the earlier marks, E_i = g_i(c_i) / mean_c g_i(c) has mean 1 under the null for any g_i >= 0 of
the answers to mark i. The product over finished marks is a test martingale: one may stop after any mark, never inside
one. Here g_i(c) = MIX * mean_c M_i(c) + (1 - MIX) * M_i(c) with M_i(c) = max(0, N_i(c) - B(c)), where B(c) is the
average of N_j(c) over the earlier marks: what the model answers anyway.

| symbol | name | default | source |
|---|---|---|---|
| K, n, C | shape of ``answers``, ``classes`` | - | the key |
| 16 | ``_UNIT`` | 16 | ours: the root in sixteenths, cut off by integers only, the same on every machine |
| MIX | ``_MIX`` | 0.05 | ours: what one mark can cost at most, a factor of 20 |

Why the root: any function of the answers alone gives a valid test, and this one was chosen for its power. A text may
send half of all images to some class of its own, and counts let such a mark outweigh many weak ones that hold. The
root tempers it: it is as powerful as counts where nothing of the kind happens, and more powerful on real models. The
comparison is in ``docs/verification.md``. With one carrier a mark, both are the same test.
"""

import math
from collections import Counter

import numpy as np
import numpy.typing as npt

from indelible.base.errors import InputError

Integers = npt.NDArray[np.int64]
_MIX = 0.05
_UNIT = 16


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
    roots = np.array([math.isqrt(_UNIT**2 * (number + 1)) for number in range(int(counts.max(initial=0)) + 1)])[counts]
    scores: Integers = len(counts) * roots - roots.sum(0)
    return scores


def codebook_p_value(scores: Integers, drawn: Integers) -> float:
    """Return the exact p-value of the drawn classes (int64, (K,)), for scores S_i(c) (int64, (K, C))."""
    marks, classes = (int(side) for side in scores.shape)
    if drawn.shape != (marks,) or drawn.min() < 0 or drawn.max() >= classes:
        raise InputError(f"{marks} marks need as many classes from 0 to {classes - 1}, got {drawn.tolist()}.")
    losses = class_losses(scores)
    ways, width = loss_counts(losses, int(losses[np.arange(marks), drawn].sum()))
    # Halve the number of fields until one is left: adding fields cannot overflow, since their sum fits.
    fields = max(1, -(-ways.bit_length() // width))
    while fields > 1:
        half = -(-fields // 2)
        ways, fields = (ways & (1 << half * width) - 1) + (ways >> half * width), half
    draws: int = classes**marks
    return ways / draws


def class_losses(scores: Integers) -> Integers:
    """Return how much every class falls short of the best one of its row, in the largest unit that fits all."""
    losses: Integers = scores.max(1)[:, None] - scores
    return losses // max(1, int(np.gcd.reduce(losses, axis=None)))


def loss_counts(losses: Integers, most: int) -> tuple[int, int]:
    """Return in how many ways the losses add up to 0, 1, .. ``most``: one field each of an integer, and its width."""
    marks, classes = (int(side) for side in losses.shape)
    width = int(classes**marks).bit_length()
    kept = (1 << (most + 1) * width) - 1
    ways = 1
    for row in losses.tolist():
        terms = Counter(loss for loss in row if loss <= most)
        ways = sum(number * (ways << loss * width) for loss, number in terms.items()) & kept
    return ways, width


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
    """Return E_i of a finished mark, from N_i(c) (int64, (C,)) and those of the marks before it (int64, (i - 1, C))."""
    usual = earlier.mean(0) if len(earlier) else np.zeros(len(counts))
    gain = np.maximum(0.0, counts - usual)
    mean = float(gain.mean())
    if mean <= 0.0:
        return 1.0  # nothing but what the model answers anyway: this mark says nothing
    return _MIX + (1.0 - _MIX) * float(gain[drawn]) / mean
