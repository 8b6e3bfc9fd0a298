"""Every embedding method over every kind of network: the table in settings.py decides what runs."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.embedding import EMBEDDINGS, Embedded
from indelible.keys.key import Key
from indelible.nn.layers import check_finite
from indelible.train.history import TIME_FIELDS
from indelible.train.loop import Loop
from tests.conftest import stripes
from tests.settings import FRACTION, NETS, SETTINGS, TRAIN, VARIANTS, build, key_of, share
from tests.values import method_value


def run(net: str, key: Key, method: str, settings: Mapping[str, Any], **more: Any) -> Embedded:
    train = {**TRAIN, **NETS[net][1], **more.pop("train", {})}
    test, own = stripes(80, seed=1), key_of(method, key)
    return indelible.embed(
        build(net), stripes(320), own, method_value(method, own, "paper", **share(method, FRACTION), **settings),
        scale="paper", train=train, test=test, device="cpu", **more,
    )  # fmt: skip


def state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return list(first) == list(second) and all(torch.equal(first[name], second[name]) for name in first)


def test_every_registered_method_has_a_row() -> None:
    assert set(SETTINGS) == set(EMBEDDINGS), "add the method to tests/settings.py"
    assert {method for method, _ in VARIANTS.values()} <= set(EMBEDDINGS)


def check(embedded: Embedded, net: str) -> None:
    fresh = build(net)
    assert type(embedded.model) is type(fresh)
    assert [type(layer) for layer in embedded.model.modules()] == [type(layer) for layer in fresh.modules()]
    assert list(embedded.model.state_dict()) == list(fresh.state_dict())
    assert [value.dtype for value in embedded.model.parameters()] == [value.dtype for value in fresh.parameters()]
    check_finite(embedded.model)
    assert all(layer.training for layer in embedded.model.modules())
    assert all("forward" not in layer.__dict__ and "train" not in layer.__dict__ for layer in embedded.model.modules())
    assert embedded.record.metrics["wsr"] > 0.6, embedded.record.metrics
    assert embedded.record.metrics["ba"] > 0.6, embedded.record.metrics


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("method", SETTINGS)
def test_every_method_on_every_network(key: Key, method: str, net: str) -> None:
    check(run(net, key, method, SETTINGS[method]), net)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(key: Key, variant: str) -> None:
    method, settings = VARIANTS[variant]
    check(run("batchnorm", key, method, settings), "batchnorm")


@pytest.mark.parametrize("method", SETTINGS)
def test_the_input_model_is_unchanged(key: Key, method: str) -> None:
    net = build("batchnorm")
    net.eval()
    before = state(net)
    embedded = indelible.embed(
        net,
        stripes(64),
        key_of(method, key),
        method_value(method, key_of(method, key), "paper", **SETTINGS[method]),
        scale="paper",
        train={**TRAIN, "epochs": 1},
        device="cpu",
    )
    assert same(state(net), before)
    assert not any(layer.training for layer in net.modules())
    assert not any(layer.training for layer in embedded.model.modules())
    assert all(weight.grad is None for weight in net.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("method", SETTINGS)
@pytest.mark.parametrize("at", [11, 47])
def test_a_broken_run_resumes_to_the_same_bits(
    key: Key, method: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off in the second epoch, and late: for EW, whose pre-training takes 40 steps, in its second phase."""
    settings = {**SETTINGS[method], **({"epochs": 2} if method == "ew" else {})}
    train = {"epochs": 4 if method == "ew" else 6}
    whole = run("batchnorm", key, method, settings, train=train)
    calls = []
    plain = Loop.advance

    def interrupted(self: Loop, images: Tensor, labels: Tensor, epoch: int) -> None:
        calls.append(self.step)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        plain(self, images, labels, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run("batchnorm", key, method, settings, train=train, folder=tmp_path)
    assert len(calls) == at
    rest = run("batchnorm", key, method, settings, train=train, folder=tmp_path)
    assert same(state(rest.model), state(whole.model))
    assert untimed(rest.history) == untimed(whole.history)
    assert rest.record.images == whole.record.images
    # Once finished, all phases come back from disk to the same model.
    again = run("batchnorm", key, method, settings, train=train, folder=tmp_path)
    assert same(state(again.model), state(whole.model))


def untimed(rows: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIME_FIELDS} for row in rows]
