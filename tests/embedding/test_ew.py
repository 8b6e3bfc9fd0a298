"""EW: the two phases and their settings, what stays behind, own loops."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.embedding.ew import ExponentialWeights, refresh_statistics, what_stays
from indelible.keys.key import Key
from indelible.train import Schedule, TrainSettings
from indelible.train.settings import SCALES
from tests.conftest import TinyNet, stripes
from tests.settings import GroupNormNet
from tests.values import method_value


def test_the_papers_embedding_phase() -> None:
    clean, settings = ExponentialWeights().phases(TrainSettings())
    assert clean == TrainSettings()
    assert (settings.epochs, settings.lr) == (20, 0.1)
    assert settings.schedule == Schedule.milestones(10, 15)
    assert settings.weight_decay == TrainSettings().weight_decay


def test_both_phases_may_share_the_runs_epochs() -> None:
    """Two thirds of 12 epochs clean leave 4, on the run's own schedule."""
    run = TrainSettings(epochs=12, schedule=Schedule.one_cycle())
    method = ExponentialWeights(pretraining=2 / 3, epochs=None, milestones=None)
    clean, settings = method.phases(run)
    assert (clean.epochs, settings.epochs) == (8, 4)
    assert clean.schedule == settings.schedule == run.schedule
    with pytest.raises(InputError, match="none are left"):
        ExponentialWeights(epochs=None).phases(run)


def test_the_cpu_preset_trains_no_longer_than_vanilla() -> None:
    run = SCALES["cpu"].settings
    clean, settings = ExponentialWeights(**ExponentialWeights.cpu_settings).phases(run)
    assert clean.epochs + settings.epochs == run.epochs


def test_two_phases_and_none_for_a_trained_model(net: TinyNet, key: Key) -> None:
    def phases(**more: Any) -> list[tuple[str, int]]:
        found = indelible.embed(
            net,
            stripes(64),
            key,
            method_value("ew", key, "paper", epochs=3),
            scale="paper",
            train={"epochs": 2, "batch_size": 32},
            device="cpu",
            **more,
        )
        return [(row["phase"], row["epoch"]) for row in found.history]

    embedding = [("embedding", 1), ("embedding", 2), ("embedding", 3)]
    assert phases() == [("pre-training", 1), ("pre-training", 2), *embedding]
    assert phases(start="trained") == embedding[:2]


def test_pre_training_sees_no_watermark(net: TinyNet, key: Key) -> None:
    found = indelible.embed(
        net, stripes(64), key, method_value("ew", key, "paper", epochs=1), scale="paper",
        train={"epochs": 1, "batch_size": 32, "evaluate_every": 1}, device="cpu", test=stripes(32, seed=1),
    )  # fmt: skip
    assert "wsr_embedded" not in found.history[0]
    assert "wsr_embedded" in found.history[1]


def test_what_stays() -> None:
    assert what_stays(TinyNet(), "auto") == "plain"
    assert what_stays(GroupNormNet(), "auto") == "folded"
    assert what_stays(GroupNormNet(), "plain") == "plain"


def test_refreshed_statistics_fit_the_weights(net: TinyNet, data: ImageData) -> None:
    """Weights ten times as large: the refreshed statistics of the first layer are ten and a hundred times as large."""
    settings = TrainSettings(epochs=1, batch_size=32, augmentation="none")
    layer = net.features[1]
    assert isinstance(layer, nn.BatchNorm2d)
    net.eval()
    refresh_statistics(net, data, settings, seed=0)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    mean, variance = layer.running_mean.clone(), layer.running_var.clone()
    with torch.no_grad():
        net.features[0].weight.mul_(10)  # type: ignore[operator]
    refresh_statistics(net, data, settings, seed=0)
    torch.testing.assert_close(layer.running_mean, 10 * mean)
    torch.testing.assert_close(layer.running_var, 100 * variance)
    assert not net.training
    assert layer.momentum == 0.1


def test_own_loop(net: TinyNet, data: ImageData) -> None:
    keys = list(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net.head.weight.detach().clone()
    with indelible.EW(net, 2.0) as mark:
        assert mark.method.temperature == 2.0
        F.cross_entropy(net(data.images[:32].float() / 255), data.labels[:32]).backward()
        optimizer.step()
    assert list(net.state_dict()) == keys
    assert not torch.equal(net.head.weight, before)


def test_settings_are_checked_and_repr_rebuilds() -> None:
    value = ExponentialWeights(milestones=[0.5], temperature=1.0)  # type: ignore[arg-type]
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(UnknownNameError, match="auto, folded, plain"):
        ExponentialWeights(leave="off")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="temperature"):
        ExponentialWeights(temperature=-1)
    with pytest.raises(InputError, match=r"pretraining must lie in \(0, 1\], got 1.5"):
        ExponentialWeights(pretraining=1.5)
