"""Null p-values of a codebook's tests on suspects that try to be mistaken for marked ones, by simulated answers.

Every suspect is claimed with 20 secrets. Given its answers, the classes of different secrets are independent, so that
the share of p-values at most alpha has no more than binomial error.

| null | how a suspect answers a carrier with a mark |
|---|---|
| uniform | any class, equally likely |
| skewed | classes by weights drawn anew for each suspect |
| constant | one class always |
| runs | skewed, in runs of seven equal answers that go on from mark to mark |
| dependent | as the mark before, but for one carrier in ten |
| own class | every mark has a class of its own, which it sends three quarters of all carriers to |
| accurate | three of four right, else skewed, the same for every mark; each mark changes one answer in ten |
"""

import numpy as np

from indelible.verification.statistics.codebook_tests import (
    Integers,
    answer_counts,
    codebook_scores,
    sequential_factor,
)
from many_draws import codebook_p_values

__all__ = ["BOOK_NULLS", "codebook_null"]

BOOK_NULLS = ("uniform", "skewed", "constant", "runs", "dependent", "own class", "accurate")
_CLASSES = 10
# Marks, carriers of each, secrets that one suspect is claimed with.
_MARKS, _EACH, _SECRETS = 16, 50, 20


def codebook_null(null: str, suspects: int, *, sequential: bool = False, seed: int = 0) -> list[float]:
    """Return p-values of simulated suspects, each claimed with 20 secrets; the sequential ones at their smallest."""
    found: list[float] = []
    for number in range(suspects):
        random = np.random.default_rng([seed, number])
        answers, true = _book_answers(null, random)
        counts = answer_counts(answers, true, _CLASSES)
        draws = random.integers(_CLASSES, size=(_SECRETS, _MARKS))
        if not sequential:
            found += codebook_p_values(codebook_scores(counts), draws).tolist()
            continue
        factors = np.array([
            [sequential_factor(counts[mark], counts[:mark], label) for label in range(_CLASSES)]
            for mark in range(_MARKS)
        ])  # fmt: skip
        capital = np.cumprod(factors[np.arange(_MARKS), draws], axis=1)
        found += np.minimum(1.0, 1.0 / capital.max(1)).tolist()  # whoever looks after every mark stops at the peak
    return found


def _book_answers(null: str, random: np.random.Generator) -> tuple[Integers, Integers]:
    """Return answers (int64, (K, n)) of one suspect, and the true classes (n,) of the carriers."""
    true, size = random.integers(_CLASSES, size=_EACH), (_MARKS, _EACH)
    weights = np.full(_CLASSES, 0.1) if null == "uniform" else random.dirichlet(np.full(_CLASSES, 0.3))
    answers: Integers = random.choice(_CLASSES, size=size, p=weights)
    if null == "constant":
        answers[:] = random.integers(_CLASSES)
    elif null == "runs":
        answers = np.repeat(answers.reshape(-1), 7)[: answers.size].reshape(size)
    elif null == "dependent":
        for mark in range(1, _MARKS):
            answers[mark] = np.where(random.random(_EACH) < 0.9, answers[mark - 1], answers[mark])
    elif null == "own class":
        own = random.integers(_CLASSES, size=(_MARKS, 1))
        answers = np.where(random.random(size) < 0.75, own, answers)
    elif null == "accurate":
        usual = np.where(random.random(_EACH) < 0.75, true, answers[0])
        answers = np.where(random.random(size) < 0.9, usual, answers)
    return answers, true
