"""Calibration, quick: null p-values are at most uniform, power is what was planned, and a bad test is found out."""

import json
import math
from typing import Any

import numpy as np
import pytest

import calibration
import codebook_suspects
from calibration import (
    Calibration,
    allowed,
    binomial_null,
    measure_calibration,
    null_p_values,
    power_found,
    rank_null,
)
from codebook_suspects import BOOK_NULLS, codebook_null
from indelible.verification import procedures
from indelible.verification.findings import Finding
from indelible.verification.statistics.codebook_tests import Integers
from indelible.verification.statistics.exact_tests import binomial_tail
from indelible.verification.suspect_queries import SuspectQueries
from many_draws import codebook_p_values


@pytest.mark.parametrize("null", ["uniform", "skewed", "constant", "accurate", "sticky"])
def test_keyed_p_values_hold_for_any_model(null: str) -> None:
    values = null_p_values("keyed", "keyed", null, 500)
    for alpha in (0.05, 0.01, 0.001):
        assert sum(value <= alpha for value in values) / 500 <= allowed(alpha, 500)


@pytest.mark.parametrize(
    ("test", "labels"),
    [
        ("binomial", "fixed"),
        ("decoys", "fixed"),
        ("codebook", "codebook"),
        ("sequential", "codebook"),
    ],
)
def test_p_values_hold_on_skewed_models(test: str, labels: str) -> None:
    values = null_p_values(test, labels, "skewed", 100)
    for alpha in (0.05, 0.01):
        assert sum(value <= alpha * (1 + 1e-12) for value in values) / 100 <= allowed(alpha, 100)


def test_a_naive_null_rate_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1/K as the null rate of a fixed target, as others use it, the same measurement fails at once."""

    def naive(queries: SuspectQueries) -> Finding:
        hits, trials = queries.hits(queries.samples), len(queries.samples)
        p_value = binomial_tail(hits, trials, 0.1)
        return Finding(hits=hits, trials=trials, p_value=p_value, assumptions=())

    wrong = procedures.Procedure(name="naive", title="1/K", labels=("fixed",), run=naive)
    monkeypatch.setattr(procedures, "PROCEDURES", {**procedures.PROCEDURES, "naive": wrong})
    values = null_p_values("naive", "fixed", "skewed", 200)
    assert sum(value <= 0.001 for value in values) / 200 > 0.1


def test_by_counts() -> None:
    for values in (rank_null(2000, 99), binomial_null(5000)):
        for alpha in (0.05, 0.01):
            share = sum(value <= alpha * (1 + 1e-12) for value in values) / len(values)
            assert share <= allowed(alpha, len(values))
    # The rank test is exact, not only safe: 1 in 20 within five standard deviations.
    assert sum(value <= 0.05 * (1 + 1e-12) for value in rank_null(2000, 99)) / 2000 > 0.026


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("null", BOOK_NULLS)
def test_a_codebook_holds_for_suspects_that_try_to_be_mistaken(null: str, sequential: bool) -> None:
    values = codebook_null(null, 60, sequential=sequential)
    assert len(values) == 1200
    for alpha in (0.05, 0.01, 0.001):
        assert sum(value <= alpha * (1 + 1e-12) for value in values) / 1200 <= allowed(alpha, 1200)


def test_the_exact_test_is_exact_and_not_only_safe() -> None:
    """With many answers there are few ties: 1 in 20 within four standard deviations, not far fewer."""
    values = codebook_null("skewed", 60)
    assert sum(value <= 0.05 for value in values) / 1200 > 0.05 - 4 * math.sqrt(0.05 * 0.95 / 1200)


def test_classes_that_follow_the_answers_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claimant who may choose the class of each mark after seeing the answers gets a p-value that is none."""

    def chosen(scores: Integers, draws: Integers) -> np.ndarray[Any, np.dtype[np.float64]]:
        return codebook_p_values(scores, np.broadcast_to(scores.argmax(1), draws.shape))

    monkeypatch.setattr(codebook_suspects, "codebook_p_values", chosen)
    assert sum(value <= 0.001 for value in codebook_null("own class", 5)) == 100


def test_power_is_what_was_planned() -> None:
    for labels, wsr in (("keyed", 0.6), ("fixed", 0.9)):
        row = power_found(labels, wsr, verdicts=400)
        assert row["found"] == pytest.approx(row["planned"], abs=0.05)


def test_record_and_what_breaks_it() -> None:
    found = measure_calibration(verdicts=5, power_verdicts=0, cases=(("keyed", "keyed", ("uniform",)),))
    assert found.rows[0]["test"] == "keyed"
    good = {"shares": {"0.05": {"found": 0.04, "allowed": 0.06}}}
    bad = {"shares": {"0.05": {"found": 0.07, "allowed": 0.06}}}
    power = {"planned": 0.9, "found": 0.89}
    assert Calibration(verdicts=1, rows=[good], power=[power], seconds=0).holds
    assert not Calibration(verdicts=1, rows=[good, bad], power=[power], seconds=0).holds
    assert not Calibration(verdicts=1, rows=[good], power=[{"planned": 0.9, "found": 0.87}], seconds=0).holds


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Calibration(verdicts=1, rows=[], power=[], seconds=0)
    monkeypatch.setattr(calibration, "measure_calibration", lambda **_: made)
    assert calibration.main(["--verdicts", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == 1
    assert calibration.main(["--verdicts", "0"]) == 2
