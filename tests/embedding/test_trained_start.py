"""A codebook in a trained model: the model's own answers take the place of labels."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
from indelible.train.evaluate import evaluating
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value

QUICK: dict[str, Any] = {"train": {"epochs": 1, "batch_size": 32}, "start": "trained", "device": "cpu"}


@pytest.fixture
def book() -> Key:
    return Key.create(classes=4, shape=SHAPE, secret=SECRET)


def few_rows(book: Key, **settings: Any) -> Any:
    """Return APP for a trained model, with few rows."""
    return method_value("app", book, start="trained", rows=4, **settings)


def answers(model: nn.Module, data: ImageData) -> Tensor:
    with evaluating(model):
        return F.log_softmax(model(data.images / 255), 1)


def test_labels_decide_nothing(net: TinyNet, book: Key, key: Key) -> None:
    """With a codebook; a key with one class has its marks among the labelled images, and trains on labels."""
    data = stripes(64)
    other = replace(data, labels=(data.labels + 1) % 4)

    def digest(own: Key, of: ImageData, **more: Any) -> Any:
        how = {**QUICK, **more}
        method = method_value("app", own, start=how["start"], rows=4)
        return indelible.embed(net, of, own, method, **how).record.metrics["model_digest"]

    assert digest(book, data) == digest(book, other)
    assert digest(book, data, start="scratch") != digest(book, other, start="scratch")
    assert digest(key, data) != digest(key, other)


def test_the_model_keeps_its_answers(net: TinyNet, book: Key) -> None:
    """Without marks (alpha 0) nothing pulls it away from what it was: it stays where labels would move it."""
    data = stripes(64)
    before = answers(net, data)

    def moved(start: str) -> float:
        how = {**QUICK, "start": start, "train": {"epochs": 3, "batch_size": 32, "lr": 0.05, "augmentation": "none"}}
        method = method_value("app", book, start=start, rows=4, alpha=0.0, head_start=0)
        made = indelible.embed(net, data, book, method, **how)
        after = answers(made.model, data)
        return float(F.kl_div(after, before, log_target=True, reduction="batchmean"))

    assert moved("trained") < 0.2 * moved("scratch")


def test_the_model_that_is_copied_is_counted_and_stays(net: TinyNet, book: Key) -> None:
    """Two steps of 32 rows pass through both models; one step of two has a watermark pass of 4 + 16 rows, twice."""
    state = {name: value.clone() for name, value in net.state_dict().items()}
    made = indelible.embed(net, stripes(64), book, few_rows(book, head_start=0, every=2), **QUICK)
    assert made.record.images == 2 * 2 * 32 + 2 * (4 + 16)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_label_smoothing_is_refused(net: TinyNet, book: Key) -> None:
    how = {**QUICK, "train": {"epochs": 1, "batch_size": 32, "label_smoothing": 0.1}}
    with pytest.raises(InputError, match="label_smoothing has no effect on a trained model"):
        indelible.embed(net, stripes(64), book, few_rows(book), **how)


def test_the_short_form(net: TinyNet, book: Key, key: Key) -> None:
    """600 steps of 128 rows, whatever the number of images; half of the weight; what is given wins."""
    method = AdversarialPerturbation()
    assert method.short_form(book, 40_000) == {"batch_size": 128, "epochs": 2}
    assert method.short_form(book, 76_800) == {"batch_size": 128, "epochs": 1}
    assert method.short_form(book, 100) == {"batch_size": 128, "epochs": 768}
    assert method.short_form(key, 40_000) == {}
    new, trained = (AdversarialPerturbation.for_codebook(16, start) for start in ("scratch", "trained"))
    assert (new["alpha"], new["head_start"], new["every"]) == (0.03, 992, 2)
    assert (trained["alpha"], trained["head_start"], trained["every"]) == (0.015, 496, 3)
    how: dict[str, Any] = {"start": "trained", "device": "cpu"}
    settings = indelible.embed(net, stripes(64), book, few_rows(book), train={"max_steps": 1}, **how).record.settings
    assert (settings["train"]["batch_size"], settings["train"]["epochs"]) == (128, 1200)
    assert settings["method"]["alpha"] == 0.015
    settings = indelible.embed(net, stripes(64), book, train={"epochs": 1, "batch_size": 32}, **how).record.settings
    assert settings["method"]["alpha"] == 0.015
    assert (settings["train"]["batch_size"], settings["train"]["epochs"]) == (32, 1)
