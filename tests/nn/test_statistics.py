"""Running statistics: untouched by extra passes, estimated anew by hand and directly, frozen layers left alone."""

import copy

import pytest
import torch
from torch import nn

from indelible.base.errors import InputError
from indelible.nn.statistics import (
    attacking,
    estimate_statistics,
    frozen_batch_norms,
    kept_frozen,
    reestimating,
    untracked,
)
from tests.conftest import TinyNet


def test_untracked_passes_change_nothing(net: TinyNet) -> None:
    net.train()
    images = torch.rand(8, 3, 32, 32)
    expected = copy.deepcopy(net)(images)
    before = copy.deepcopy(net.state_dict())
    with untracked(net):
        assert torch.equal(net(images), expected)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net(images)
    assert not torch.equal(net.state_dict()["features.1.running_mean"], before["features.1.running_mean"])


def test_reestimating_is_the_mean_over_batches() -> None:
    layer = nn.BatchNorm1d(2).train()
    layer(torch.randn(16, 2) + 5)
    batches = [torch.randn(8, 2), torch.randn(8, 2) + 1, torch.randn(8, 2) * 3]
    with reestimating(layer):
        for batch in batches:
            layer(batch)
    assert layer.momentum == 0.1
    assert layer.running_mean is not None
    assert layer.running_var is not None
    torch.testing.assert_close(layer.running_mean, torch.stack([batch.mean(0) for batch in batches]).mean(0))
    torch.testing.assert_close(layer.running_var, torch.stack([batch.var(0) for batch in batches]).mean(0))


def test_which_layers_are_frozen(net: TinyNet) -> None:
    first, second = (layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d))
    net.train()
    assert frozen_batch_norms(net) == []
    first.eval()
    assert frozen_batch_norms(net) == [first]
    second.requires_grad_(False)
    assert frozen_batch_norms(net) == [first, second]
    net.requires_grad_(True)
    net.eval()  # a model as a whole in evaluation mode says nothing about single layers
    assert frozen_batch_norms(net) == []


def test_frozen_layers_stay_frozen_while_the_model_trains(net: TinyNet) -> None:
    net.train()
    first, second = (layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d))
    first.eval()
    before = copy.deepcopy(first.state_dict())
    with kept_frozen(net):
        net.train()
        assert not first.training
        assert second.training
        net(torch.rand(8, 3, 32, 32))
    assert all(torch.equal(value, before[name]) for name, value in first.state_dict().items())
    assert not first.training
    net.train()
    assert first.training


def test_estimates_by_hand() -> None:
    """Batches (1, 3) and (4, 4, 10): means 2 and 6, variances 2 and 12; weighed 2:3 they are 4.4 and 8."""
    layer = nn.BatchNorm1d(1, momentum=0.3)
    nn.init.constant_(layer.get_buffer("running_mean"), 100.0)
    seen = estimate_statistics(layer, [torch.tensor([[1.0], [3.0]]), torch.tensor([[4.0], [4.0], [10.0]])])
    assert seen == 5
    torch.testing.assert_close(layer.running_mean, torch.tensor([4.4]))
    torch.testing.assert_close(layer.running_var, torch.tensor([8.0]))
    assert layer.momentum == 0.3


def test_moving_estimates_by_hand() -> None:
    """Momentum 0.5 from mean 0 and variance 1: after (1, 3) mean 1 and variance 1.5."""
    layer = nn.BatchNorm1d(1, momentum=0.5)
    estimate_statistics(layer, [torch.tensor([[1.0], [3.0]])], moving=True)
    torch.testing.assert_close(layer.running_mean, torch.tensor([1.0]))
    torch.testing.assert_close(layer.running_var, torch.tensor([1.5]))


def test_estimates_against_a_direct_computation(net: TinyNet) -> None:
    """Each layer's statistics are those of what reaches it, and the second layer sees normalised inputs."""
    net.features.insert(3, nn.Dropout(0.5))
    images = torch.rand(48, 3, 32, 32)
    estimate_statistics(net.train(), images.split(16))
    first, second = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    before = [net.features[0](part) for part in images.split(16)]
    torch.testing.assert_close(first.running_mean, torch.cat(before).mean((0, 2, 3)))
    torch.testing.assert_close(
        first.running_var, torch.stack([part.var((0, 2, 3), correction=1) for part in before]).mean(0)
    )

    def normalised(part: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(part, (0, 2, 3), correction=0, keepdim=True)
        reached: torch.Tensor = net.features[4](((part - mean) / (variance + 1e-5).sqrt()).relu())
        return reached

    torch.testing.assert_close(
        second.running_mean, torch.cat([normalised(part) for part in before]).mean((0, 2, 3)), rtol=1e-4, atol=1e-5
    )
    assert all(module.training for module in net.modules())


def test_modes_come_back_and_nothing_is_done_without_batchnorm(net: TinyNet) -> None:
    net.eval()
    net.features[1].train()
    estimate_statistics(net, [torch.rand(4, 3, 32, 32)])
    assert [module.training for module in net.modules()].count(True) == 1
    assert estimate_statistics(nn.Linear(2, 2), iter([torch.zeros(1, 2)])) == 0
    with pytest.raises(InputError, match="none"):
        estimate_statistics(net, [])


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_passes_of_the_attack_leave_statistics_and_modes_alone(net: TinyNet, mode: str) -> None:
    net.train()
    net.features[1].eval()  # a layer that the user froze
    before = {name: value.clone() for name, value in net.state_dict().items()}
    images = torch.rand(8, 3, 32, 32)
    with attacking(net, mode):  # type: ignore[arg-type]
        assert net.features[4].training == (mode == "train")
        inside = net(images)
    with pytest.raises(RuntimeError, match="on purpose"), attacking(net, mode):  # type: ignore[arg-type]
        raise RuntimeError("on purpose")
    assert [layer.training for layer in net.features] == [True, False, *[True] * 6]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.features[4].track_running_stats
    # Training mode normalises by the batch, evaluation mode by what the network remembers.
    assert torch.allclose(inside, net(images)) == (mode == "train")
