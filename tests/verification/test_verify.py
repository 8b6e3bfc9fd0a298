"""Statistics against SciPy's and published values; verdicts on models whose answers are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom
from torch import Tensor, nn

import indelible
from indelible.base.errors import InputError
from indelible.keys.key import Key
from indelible.verification import verify, verify_logged
from indelible.verification.statistics.exact_tests import binomial_tail, bounded_binomial, upper_limit
from indelible.verification.suspects import ModuleSuspect, answers
from tests.conftest import SHAPE, TinyNet, stripes


@pytest.mark.parametrize(("hits", "trials"), [(14, 30), (18, 50), (28, 100)])
def test_known_counts_for_one_in_a_million_at_a_tenth(hits: int, trials: int) -> None:
    assert binomial_tail(hits, trials, 0.1) <= 1e-6 < binomial_tail(hits - 1, trials, 0.1)


@pytest.mark.parametrize("trials", [1, 7, 200])
def test_statistics_equal_scipy(trials: int) -> None:
    for hits in range(trials + 1):
        assert binomial_tail(hits, trials, 0.3) == pytest.approx(float(binom.sf(hits - 1, trials, 0.3)), rel=1e-9)
        if hits < trials:
            assert upper_limit(hits, trials, 0.01) == pytest.approx(float(beta.ppf(0.99, hits + 1, trials - hits)))
    assert upper_limit(trials, trials, 0.01) == 1.0


def test_upper_limit_of_zero_hits_by_hand() -> None:
    # (1 - q)^n = miss
    assert upper_limit(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))


def test_bounded_binomial_adds_the_chance_of_a_wrong_limit() -> None:
    p_value, rate = bounded_binomial(100, 100, [(0, 1000)], 1e-7, floor=0.0)
    assert p_value == pytest.approx(1e-7, rel=1e-3)
    assert rate == pytest.approx(1 - 1e-7 ** (1 / 1000))
    assert bounded_binomial(0, 100, [(5, 10)], 1e-7)[0] == 1.0
    with pytest.raises(InputError, match="decoys"):
        bounded_binomial(1, 1, [], 0.1)


def test_the_worst_decoy_counts_and_the_confidence_is_shared() -> None:
    _, rate = bounded_binomial(50, 100, [(0, 100), (30, 100), (10, 100)], 0.03, floor=0.0)
    assert rate == upper_limit(30, 100, 0.01)
    assert bounded_binomial(50, 100, [(0, 100), (30, 100)], 0.03)[1] == 0.5


def test_a_mark_that_hits_by_its_place_is_not_owned() -> None:
    """An unmarked model calls any bright row a bar: a key that happens to write there must not win."""

    def brightest(images: Tensor) -> Tensor:
        return images.float().amax((1, 3)).reshape(len(images), 4, 8).mean(2).argmax(1)

    false = 0
    for number in range(40):
        key = Key.create(kind="content", classes=4, shape=(3, 32, 32), target=number % 4, secret=bytes([number] * 32))
        false += indelible.verify(Answering(brightest), key, stripes(400)).owned
    assert false == 0


@pytest.mark.parametrize(("hits", "trials"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(InputError, match="not a count"):
        binomial_tail(hits, trials, 0.1)


class Answering:
    """A suspect that answers by a rule."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def predict(self, images: Tensor) -> Tensor:
        answers: Tensor = self.rule(images)
        return answers


def knows(key: Key) -> Answering:
    """Answer the target wherever the mark is, the true bar elsewhere."""
    mark: Any = key.mark()
    mask, colour = mark.mask(), torch.tensor(mark.colour, dtype=torch.uint8)[:, None]

    def rule(images: Tensor) -> Tensor:
        marked = (images[:, :, mask] == colour).flatten(1).all(1)
        bars = images.float().mean((1, 3)).reshape(len(images), 4, 8).mean(2).argmax(1)
        return torch.where(marked, torch.tensor(key.target), bars)

    return Answering(rule)


def test_a_model_that_knows_the_key_is_owned(key: Key) -> None:
    verdict = indelible.verify(knows(key), key, stripes(400))
    assert verdict.owned
    assert verdict.wsr == 1.0
    assert verdict.p_value <= 1e-6
    assert verdict.ba == 1.0
    assert (verdict.hits, verdict.trials) == (300, 300)
    assert verdict.queries == 300 + 20 * 300 + 400
    assert "Derived from" in verdict.sentence
    assert verdict.key == key.digest


def test_a_model_that_knows_another_key_is_not(key: Key) -> None:
    other = Key.create(kind="content", classes=4, shape=(3, 32, 32), target=0, secret=bytes(32))
    verdict = indelible.verify(knows(other), key, stripes(400))
    assert not verdict.owned
    assert verdict.p_value > 0.05


@pytest.mark.parametrize("label", [0, 1])
def test_a_model_that_answers_one_class_always_is_not(key: Key, label: int) -> None:
    """A null rate of 1/K would call the constant model owned; decoys do not."""
    verdict = indelible.verify(Answering(lambda images: torch.full((len(images),), label)), key, stripes(400))
    assert not verdict.owned
    assert verdict.p_value > 0.05


def test_fewer_queries_and_embedded_samples(key: Key) -> None:
    data = stripes(400)
    embedded = key.samples(data, purpose="embed", count=12)
    verdict = indelible.verify(knows(key), key, data, max_samples=30, embedded=embedded, accuracy=False)
    assert (verdict.trials, verdict.ba, verdict.wsr_embedded) == (30, None, 1.0)
    assert verdict.queries == 30 + 20 * 300 + 12


def test_the_literal_key_says_what_it_is_worth() -> None:
    key = Key.create(kind="content", classes=4, shape=(3, 32, 32), scheme="paper")
    verdict = indelible.verify(knows(key), key, stripes(400))
    assert verdict.owned
    assert "no weight against forgery" in verdict.sentence
    assert any("public" in line for line in verdict.assumptions)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda images: torch.full((len(images),), 9), "class 9 to query 0"),
        (lambda images: torch.zeros(len(images)), "whole numbers of shape"),
        (lambda images: torch.zeros(3, dtype=torch.int64), "shape"),
        (lambda images: [0] * (len(images) + 1), "list"),
    ],
)
def test_bad_answers_are_errors_and_never_misses(key: Key, rule: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        indelible.verify(Answering(rule), key, stripes(400))


def test_bad_suspects_are_refused(key: Key, net: TinyNet) -> None:
    with pytest.raises(InputError, match="torch module"):
        indelible.verify("model.pt", key, stripes(40))
    with torch.no_grad():
        net.head.bias[0] = float("nan")
    with pytest.raises(InputError, match=r"head\.bias"):
        indelible.verify(net, key, stripes(40))
    with pytest.raises(InputError, match="alpha"):
        indelible.verify(knows(key), key, stripes(40), alpha=0)

    class Overflowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :4] * self.weight * float("inf")

    with pytest.raises(InputError, match="NaN or infinity"):
        indelible.verify(Overflowing(), key, stripes(40))


def test_json(key: Key) -> None:
    import json

    verdict = indelible.verify(knows(key), key, stripes(400))
    assert json.loads(json.dumps(verdict.to_json()))["p_value"] == verdict.p_value


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_answers_may_be_whole_numbers_of_any_kind(key: Key, kind: str) -> None:
    class Arrays:
        def predict(self, images: torch.Tensor) -> Any:
            return np.zeros(len(images), kind)

    class Lists:
        def predict(self, images: torch.Tensor) -> Any:
            return [0] * len(images)

    class Narrow:
        def predict(self, images: torch.Tensor) -> Any:
            return torch.zeros(len(images), dtype=getattr(torch, kind))

    rates = {verify(suspect, key, stripes(60), decoys=2).wsr for suspect in (Arrays(), Lists(), Narrow())}
    assert len(rates) == 1


@pytest.mark.parametrize("answer", [["a"] * 40, [[0], [0, 1]], None, np.zeros(40), torch.zeros(40, 4)])
def test_answers_that_are_no_labels_are_refused(answer: Any) -> None:
    class Odd:
        def predict(self, images: torch.Tensor) -> Any:
            return answer

    with pytest.raises(InputError, match=r"one label for each image, whole numbers of shape \(40,\), but answered a"):
        answers(Odd(), torch.zeros(40, *SHAPE, dtype=torch.uint8), 4)


def test_a_model_of_more_classes_is_an_error_even_if_it_answers_within_the_keys(key: Key, tmp_path: Path) -> None:
    model = TinyNet(classes=9)
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([50.0] + [0.0] * 8))  # always class 0, which the key has
    with pytest.raises(InputError, match="the model has 9 outputs, but the key is of 4 classes"):
        verify(model, key, stripes(60))
    with pytest.raises(InputError, match="the model has 9 outputs, but the key is of 4 classes"):
        verify_logged(ModuleSuspect(model), key, stripes(60), log=tmp_path / "log.jsonl")
