"""Exact statistics for label-only answers: pure functions of counts, one file a test.

None of them knows a model, a key or an image; :mod:`indelible.verify.procedures` asks the questions and hands over the
counts. Tails are incomplete beta functions of ``scipy.special``: exact far out, and without the slow import of
``scipy.stats``.
"""

from indelible.verify.statistics.binomial import FLOOR, binomial_tail, bounded_binomial, bounded_rate, upper_limit
from indelible.verify.statistics.codebook import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_p_values,
    codebook_scores,
    held_marks,
    sequential_factor,
    smallest_p_value,
)
from indelible.verify.statistics.decoys import decoys_for, rank_p_value
from indelible.verify.statistics.holm import holm
from indelible.verify.statistics.keyed import keyed_p_value, keyed_rate, rareness
from indelible.verify.statistics.paired import mcnemar
from indelible.verify.statistics.sequential import EProcess, log_e_value

__all__ = [
    "FLOOR",
    "EProcess",
    "Integers",
    "answer_counts",
    "binomial_tail",
    "bounded_binomial",
    "bounded_rate",
    "codebook_p_value",
    "codebook_p_values",
    "codebook_scores",
    "decoys_for",
    "held_marks",
    "holm",
    "keyed_p_value",
    "keyed_rate",
    "log_e_value",
    "mcnemar",
    "rank_p_value",
    "rareness",
    "sequential_factor",
    "smallest_p_value",
    "upper_limit",
]
