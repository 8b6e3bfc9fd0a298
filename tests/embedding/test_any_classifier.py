"""Models as people bring them: tied, frozen, in double precision, with dropout, with BatchNorm that must not move."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.embedding import Embedded
from indelible.keys.key import Key
from tests.conftest import TinyNet, stripes
from tests.settings import SETTINGS, key_of, share
from tests.values import method_value

TRAIN = {"epochs": 2, "batch_size": 32, "lr": 0.05}


def run(net: nn.Module, key: Key, method: str, **more: Any) -> Embedded:
    settings = {**SETTINGS[method], **({"epochs": 1} if method == "ew" else {}), **share(method, 0.1)}
    own = key_of(method, key)
    if method == "cw":
        settings["start_epoch"] = 0
    # A fingerprint is read off a model that knows something.
    train = {**TRAIN, "epochs": 8, "augmentation": "none"} if method == "cae" else TRAIN
    return indelible.embed(
        net,
        stripes(64),
        own,
        method_value(method, own, "paper", **settings),
        scale="paper",
        train=train,
        device="cpu",
        **more,
    )


@pytest.mark.parametrize("method", SETTINGS)
def test_frozen_parameters_never_change(net: TinyNet, key: Key, method: str) -> None:
    net.features[0].requires_grad_(False)
    net.features[1].requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    after = run(net, key, method).model.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    frozen = {name for name in before if name.startswith(("features.0.", "features.1."))}
    assert not changed & frozen  # BatchNorm's statistics among them
    assert {"features.3.weight", "features.4.running_mean", "head.weight"} <= changed


@pytest.mark.parametrize("method", SETTINGS)
def test_batchnorm_in_evaluation_mode_stays_there(net: TinyNet, key: Key, method: str) -> None:
    net.train()
    net.features[1].eval()
    before = copy.deepcopy(net.features[1].state_dict())
    embedded = run(net, key, method).model
    after = embedded.get_submodule("features.1")
    assert not after.training
    assert embedded.training
    assert torch.equal(after.state_dict()["running_mean"], before["running_mean"])
    assert not torch.equal(after.state_dict()["weight"], before["weight"])  # only the statistics are frozen


class Tied(nn.Module):
    """One matrix used twice, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 32))
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.second.weight = self.first.weight
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(32, 4)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(torch.relu(self.first(self.stem(images))))
        logits: Tensor = self.head(self.drop(torch.relu(hidden)))
        return logits


@pytest.mark.parametrize("method", SETTINGS)
def test_tied_parameters_stay_tied(key: Key, method: str) -> None:
    net = Tied()
    embedded = run(net, key, method).model
    assert isinstance(embedded, Tied)
    assert embedded.first.weight is embedded.second.weight
    assert list(embedded.state_dict()) == list(net.state_dict())
    assert not torch.equal(embedded.state_dict()["first.weight"], net.state_dict()["first.weight"])


@pytest.mark.parametrize("method", SETTINGS)
def test_double_precision_is_kept(net: TinyNet, key: Key, method: str) -> None:
    embedded = run(net.double(), key, method, test=stripes(32, seed=1))
    assert {weight.dtype for weight in embedded.model.parameters()} == {torch.float64}
    assert embedded.record.settings["train"]["precision"] == "64-true"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_refused(net: TinyNet, key: Key, dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=r"lost in rounding.*model\.float\(\)"):
        run(net.to(dtype), key, "vanilla")
    mixed = TinyNet()
    mixed.head.double()
    with pytest.raises(InputError, match="several types"):
        run(mixed, key, "vanilla")


def test_protecting_a_trained_model(net: TinyNet, key: Key) -> None:
    train, test = stripes(320), stripes(80, seed=1)
    trained = indelible.embed(
        net,
        train,
        key,
        method_value("vanilla", key, "paper", fraction=0.004),
        scale="paper",
        train={"epochs": 4, "batch_size": 32, "lr": 0.1},
        device="cpu",
    ).model
    protected = indelible.embed(
        trained, train, key,
        method_value("app", key, start="trained", fraction=0.1, alpha=0.3, rows=16, clean_rows=16), scale="cpu",
        start="trained", train={"epochs": 6, "batch_size": 32}, test=test, device="cpu",
    )  # fmt: skip
    metrics = protected.record.metrics
    assert metrics["wsr_before"] < 0.5 < metrics["wsr"]
    assert metrics["ba"] >= metrics["ba_before"] - 0.02
    assert protected.record.settings["start"] == "trained"
    assert protected.record.settings["train"]["lr"] == 0.05  # the short form of the scale cpu
    with pytest.raises(UnknownNameError, match="scratch, trained"):
        indelible.embed(net, train, key, "app", start="half")  # type: ignore[arg-type]
