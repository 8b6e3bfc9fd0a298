"""Plans of sessions: known values, and against the test that is planned for."""

import json
import math
from typing import Any

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.keys.key import Key
from indelible.verification import CodebookPlan, session_plan, verify
from tests.conftest import SECRET, SHAPE, stripes
from tests.verification.test_procedures import Counting
from tests.verification.test_verify import Answering

FIXED = Key.create(kind="content", classes=10, shape=SHAPE, target=0, secret=SECRET)
KEYED = Key.create(kind="content", classes=10, shape=SHAPE, labels="keyed", secret=SECRET)
BOOK = Key.create(kind="content", classes=10, shape=SHAPE, secret=SECRET)


def test_only_a_codebook_is_planned() -> None:
    assert session_plan(FIXED, 900) is None
    assert session_plan(KEYED, 100) is None
    assert session_plan(BOOK, 3200, procedure="relearning") is None
    with pytest.raises(InputError, match="not for fixed labels"):
        session_plan(FIXED, 900, procedure="codebook")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"wsr": 0.0}, "a WSR lies above 0"), ({"alpha": 0.0}, "alpha must"), ({"power": 1.0}, "power must"),
        ({"max_samples": 0}, "at least 16 queries, got 0"), ({"max_samples": 901}, "got 901. Here 900 are possible"),
    ]  # fmt: skip
    for options, says in wrong:
        with pytest.raises(InputError, match=says):
            session_plan(BOOK, 900, **options)


def test_a_codebook_is_planned_mark_by_mark() -> None:
    made = session_plan(BOOK, 16 * 200, wsr=0.9, clean=5)
    assert made is not None
    assert (made.test, made.carriers, made.queries) == ("codebook", 1, 21)
    assert made.power > 0.99
    assert made.options == {"procedure": "codebook", "alpha": 1e-6, "max_samples": 16}
    assert "16 samples of the key, 5 clean images: 21 queries" in made.sentence
    # What is given is asked, in whole carriers; where there are too few, all are asked and the power says so.
    own = session_plan(BOOK, 16 * 200, wsr=0.2, max_samples=40)
    assert own is not None
    assert (own.carriers, own.queries) == (2, 32)
    assert 0.0 < own.power < 0.99
    assert session_plan(BOOK, 32, wsr=0.2) == own
    stopping = session_plan(BOOK, 16 * 3, wsr=0.9, procedure="sequential")
    assert stopping is not None
    assert (stopping.test, stopping.queries % 16) == ("sequential", 0)
    assert "at most" in stopping.sentence
    with pytest.raises(InputError, match="every one of its 16 marks: at least 16 queries, got 15"):
        session_plan(BOOK, 16 * 200, max_samples=15)


def test_a_plan_is_kept_as_json() -> None:
    made = session_plan(BOOK, 900)
    assert made is not None
    document: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    assert CodebookPlan.from_json(document) == made
    for wrong in ({}, {**document, "carriers": 1.5}, {**document, "test": 3}, {**document, "alpha": "x"}):
        with pytest.raises(DamagedFileError, match="plan of a session"):
            CodebookPlan.from_json(wrong)


@pytest.mark.parametrize("test", ["codebook", "sequential"])
def test_the_planned_power_is_found(test: str) -> None:
    """A suspect with the planned rate, 60 times: within four standard deviations of the plan, never beyond it."""
    key = Key.create(kind="noise", classes=4, shape=(1, 4, 4), marks=8, secret=SECRET)
    carriers = stripes(40)
    small = type(carriers)(carriers.images[:, :1, :4, :4], carriers.labels, carriers.classes, "small")
    made = session_plan(key, 320, procedure=test, alpha=1e-3, wsr=0.35, power=0.8)
    assert made is not None
    assert 0.8 <= made.power < 0.99, "a case that could fail"
    whole = key.samples(small, purpose="verify")
    assert whole.true is not None
    known = {
        image.numpy().tobytes(): (int(label), int(true))
        for image, label, true in zip(whole.images, whole.labels, whole.true, strict=True)
    }
    owned = 0
    for seed in range(60):
        chance = torch.Generator().manual_seed(seed)

        def label(images: torch.Tensor, chance: torch.Generator = chance) -> torch.Tensor:
            pairs = torch.tensor([known[image.numpy().tobytes()] for image in images])
            return torch.where(torch.rand(len(images), generator=chance) < 0.35, pairs[:, 0], pairs[:, 1])

        suspect = Counting(Answering(label))
        owned += verify(suspect, key, small, accuracy=False, **made.options).owned
        assert suspect.asked <= made.queries
    assert abs(owned / 60 - made.power) < 4 * math.sqrt(made.power * (1 - made.power) / 60)
