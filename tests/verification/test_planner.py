"""The plan of a codebook: against every case at one carrier a mark, known values, what cannot be planned."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from indelible.base.errors import InputError
from indelible.verification import codebook_plan
from indelible.verification.planner import codebook_power
from indelible.verification.statistics.codebook_tests import answer_counts, codebook_p_value, codebook_scores


def exact_power(wsr: float, *, classes: int, marks: int, alpha: float) -> float:
    """One carrier a mark: every class of the carrier, every draw of classes, every set of marks that are hit."""
    total = 0.0
    for drawn in itertools.product(range(classes), repeat=marks):
        for hits in itertools.product((True, False), repeat=marks):
            # The carrier is of class 0, without loss of generality.
            answers = np.array([[label if hit else 0] for label, hit in zip(drawn, hits, strict=True)])
            counts = answer_counts(answers, np.zeros(1, dtype=np.int64), classes)
            if codebook_p_value(codebook_scores(counts), np.array(drawn)) <= alpha:
                total += wsr ** sum(hits) * (1 - wsr) ** (marks - sum(hits))
    return total / float(classes**marks)


@pytest.mark.parametrize(("wsr", "classes", "marks", "alpha"), [(0.8, 3, 4, 0.05), (0.5, 4, 3, 0.1)])
def test_one_carrier_a_mark_by_every_case(wsr: float, classes: int, marks: int, alpha: float) -> None:
    expected = exact_power(wsr, classes=classes, marks=marks, alpha=alpha)
    assert 0.1 < expected < 0.9, "a case that could not fail"
    found = codebook_power(1, wsr=wsr, classes=classes, marks=marks, alpha=alpha, draws=1000)
    assert abs(found - expected) < 4 * math.sqrt(expected * (1 - expected) / 1000)


def test_known_values() -> None:
    """Ten classes, 16 marks, WSR 0.9: 16 queries are enough."""
    found = codebook_plan(0.9, classes=10)
    assert (found.marks, found.carriers, found.queries) == (16, 1, 16)
    assert found.power > 0.99
    # The table of docs/verification.md.
    assert codebook_plan(0.3, classes=10).carriers == 4


def test_more_is_asked_of_weaker_marks_and_noisier_models() -> None:
    few: dict[str, Any] = {"classes": 4, "marks": 8, "alpha": 1e-3, "power": 0.9, "draws": 100}
    plain = codebook_plan(0.3, **few)
    assert plain.carriers > codebook_plan(0.8, **few).carriers
    assert plain.carriers < codebook_plan(0.3, wrong=0.5, **few).carriers
    assert plain == codebook_plan(0.3, **few), "the same for the same arguments"
    assert plain.power >= 0.9 > codebook_power(plain.carriers - 1, wsr=0.3, classes=4, marks=8, alpha=1e-3, draws=100)
    # One may stop after any mark, and pays for it.
    assert codebook_plan(0.3, sequential=True, **few).carriers >= plain.carriers


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"wsr": 0.0}, "a WSR lies above 0"),
        ({"wsr": 1.5}, "at most 1, got 1.5"),
        ({"alpha": 0.0}, "alpha must"),
        ({"power": 1.0}, "power must"),
        ({"wrong": 2.0}, "wrong is a share"),
        ({"marks": 5}, "5 marks over 10 classes give p = 1e-05 at the least"),
        ({"classes": 1, "marks": None}, "2 classes or more, got 1"),
        ({"wsr": 1e-5, "marks": 2, "alpha": 0.02}, "more than 1024 carriers"),
    ],
)
def test_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        codebook_plan(**{"wsr": 0.5, "classes": 10, "marks": 16, "draws": 50, **settings})
