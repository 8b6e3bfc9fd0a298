"""Running statistics: untouched by extra passes, averaged anew by hand, frozen layers left alone."""

import copy

import torch
from torch import nn

from indelible.nn.statistics import frozen_batch_norms, kept_frozen, reestimating, untracked
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
