"""Plans of sessions: by hand, against a slow reference, and against the test that is planned for."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from indelible.base.errors import DamagedFileError, InputError
from indelible.keys.key import Key
from indelible.verification import SessionPlan, plan, session_plan, verify
from indelible.verification.planner import decoy_samples_for, sequential_power
from indelible.verification.statistics.exact_tests import upper_limit
from indelible.verification.statistics.sequential import log_e_value
from tests.conftest import SECRET, SHAPE, stripes
from tests.verification.test_procedures import Counting
from tests.verification.test_verify import Answering

FIXED = Key.create(kind="content", classes=10, shape=SHAPE, target=0, secret=SECRET)
KEYED = Key.create(kind="content", classes=10, shape=SHAPE, labels="keyed", secret=SECRET)


def test_decoy_samples_by_the_limits_themselves() -> None:
    """No hit of n: the limit is 1 - miss^(1/n), at most one half from n = log2(1 / miss) = 27.6 on."""
    assert decoy_samples_for(0.0, 20, 5e-9, power=0.999) == 28
    for rate in (0.1, 0.2):
        found = decoy_samples_for(rate, 20, 5e-9, power=0.999)

        def chance(count: int, rate: float = rate) -> float:
            good = [hits for hits in range(count) if upper_limit(hits, count, 5e-9) <= 0.5]
            return float(np.sum(binom.pmf(good, count, rate))) ** 20

        assert chance(found) >= 0.999 > max(chance(count) for count in range(found - 3, found))
    assert decoy_samples_for(0.5, 20, 5e-9, power=0.999) == 1000


def test_sequential_power_by_all_paths() -> None:
    """Every sequence of 12 answers: has the capital reached 20 within n?"""
    found = sequential_power(12, wsr=0.8, null_rate=0.4, alpha=0.05)
    expected = np.zeros(12)
    for answers in itertools.product((0, 1), repeat=12):
        hits = np.cumsum(answers)
        capital = [log_e_value(int(one), n, 0.4) for n, one in enumerate(hits, 1)]
        first = next((n for n, value in enumerate(capital) if value >= math.log(20)), None)
        if first is not None:
            expected[first:] += 0.8 ** hits[-1] * 0.2 ** (12 - hits[-1])
    assert found == pytest.approx(expected.tolist())


def test_the_parts_of_a_plan() -> None:
    keyed = session_plan(KEYED, 100)
    assert keyed is not None
    assert (keyed.test, keyed.samples, keyed.decoys, keyed.queries) == ("keyed", 59, 0, 59)
    assert keyed.power == plan(0.5, null_rate=1 / 9).power
    fixed = session_plan(FIXED, 900, clean=10)
    assert fixed is not None
    assert (fixed.samples, fixed.decoys, fixed.queries) == (304, 20, 304 + 20 * fixed.decoy_samples + 10)
    assert fixed.power >= 0.99
    assert "304 samples of the key, 20 decoy keys of 224 samples, 10 clean images: 4794 queries" in fixed.sentence
    short = session_plan(FIXED, 50)
    assert short is not None
    assert (short.samples, short.decoy_samples) == (50, 50)
    assert short.power < 0.1
    own = session_plan(FIXED, 900, samples=400, decoy_samples=300, decoys=10)
    assert own is not None
    assert (own.samples, own.decoys, own.decoy_samples, own.queries) == (400, 10, 300, 3400)
    sequential = session_plan(KEYED, 100, test="sequential")
    assert sequential is not None
    assert 59 < sequential.samples < 100
    assert "at most" in sequential.sentence
    assert session_plan(FIXED, 900, test="paired") is None
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"wsr": 0.5}, "cannot be told"), ({"decoy_rate": 1.0}, "decoy rate"), ({"alpha": 0.0}, "alpha must"),
        ({"decoys": 0}, "at least 1"), ({"samples": 0}, "at least 1"), ({"samples": 901}, "has 900 samples, got 901"),
    ]  # fmt: skip
    for options, says in wrong:
        with pytest.raises(InputError, match=says):
            session_plan(FIXED, 900, **options)


def test_a_codebook_is_planned_mark_by_mark() -> None:
    book = Key.create(kind="content", classes=10, shape=SHAPE, secret=SECRET)
    made = session_plan(book, 16 * 200, wsr=0.9, clean=5)
    assert made is not None
    assert (made.test, made.samples, made.decoys, made.queries) == ("codebook", 16, 0, 21)
    assert made.power > 0.99
    assert made.options == {"test": "codebook", "alpha": 1e-6, "queries": 16}
    assert "16 samples of the key, 5 clean images: 21 queries" in made.sentence
    # What is given is asked, in whole carriers; where there are too few, all are asked and the power says so.
    own = session_plan(book, 16 * 200, wsr=0.2, samples=40)
    assert own is not None
    assert (own.samples, own.queries) == (32, 32)
    assert 0.0 < own.power < 0.99
    assert session_plan(book, 32, wsr=0.2) == own
    stopping = session_plan(book, 16 * 3, wsr=0.9, test="sequential")
    assert stopping is not None
    assert (stopping.test, stopping.samples % 16) == ("sequential", 0)
    assert "at most" in stopping.sentence
    with pytest.raises(InputError, match="every one of its 16 marks: at least 16 queries, got 15"):
        session_plan(book, 16 * 200, samples=15)


def test_a_plan_is_kept_as_json() -> None:
    made = session_plan(FIXED, 900)
    assert made is not None
    document: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    assert SessionPlan.from_json(document) == made
    for wrong in ({}, {**document, "samples": 1.5}, {**document, "test": 3}, {**document, "alpha": "x"}):
        with pytest.raises(DamagedFileError, match="plan of a session"):
            SessionPlan.from_json(wrong)


@pytest.mark.parametrize("test", ["binomial", "sequential"])
def test_the_planned_power_is_found(test: str) -> None:
    """A suspect with the planned rates, 60 times: within four standard deviations of the plan, never beyond it."""
    key = Key.create(kind="noise", classes=4, shape=(1, 4, 4), target=0, secret=SECRET)
    carriers = stripes(400)
    small = type(carriers)(carriers.images[:, :1, :4, :4], carriers.labels, carriers.classes, "small")
    made = session_plan(key, 300, test=test, alpha=1e-3, wsr=0.8, power=0.9, decoys=3, decoy_rate=0.1)
    assert made is not None
    owned = 0
    marked = {image.numpy().tobytes() for image in key.samples(small, purpose="verify").images}
    for seed in range(60):
        chance = torch.Generator().manual_seed(seed)

        def label(images: torch.Tensor, chance: torch.Generator = chance) -> torch.Tensor:
            rates = torch.tensor([0.8 if image.numpy().tobytes() in marked else 0.1 for image in images])
            return (torch.rand(len(images), generator=chance) >= rates).long()

        suspect = Counting(Answering(label))
        owned += verify(suspect, key, small, accuracy=False, **made.options).owned
        assert suspect.asked <= made.queries
    assert abs(owned / 60 - made.power) < 4 * math.sqrt(made.power * (1 - made.power) / 60)
