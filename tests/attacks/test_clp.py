"""CLP: the spectral bound and outliers by hand, pairs of layers by what they pass on, pruned channels that are dead."""

import math

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks import ChannelLipschitzness, attack
from indelible.attacks.clp import channel_bounds, normalised_layers, outliers
from indelible.data.images import ImageData
from tests.conftest import TinyNet
from tests.values import attack_value


def test_settings() -> None:
    value = ChannelLipschitzness()
    assert (value.u, value.ba_drop, value.protocol) == (None, 0.02, "sound")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_bounds_by_hand() -> None:
    """One channel in, so a 2 x 2 filter is a row: its norm. Two channels in: [[3, 0], [0, 1]] has the largest value 3,
    and [[1, 1], [1, 1]] has 2; gamma -2 and 0.5, sigma 1 and 0.25: factors 2 and 2.
    """
    one = torch.tensor([[[[3.0, 0.0], [0.0, 4.0]]]])
    assert channel_bounds(one, torch.ones(1), torch.ones(1)).tolist() == pytest.approx([5.0])
    weight = torch.tensor([[[3.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])[:, :, None]
    bounds = channel_bounds(weight, torch.tensor([-2.0, 0.5]), torch.tensor([1.0, 0.25]))
    assert bounds.tolist() == pytest.approx([6.0, 4.0])
    linear = channel_bounds(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.ones(2), torch.tensor([1.0, 2.0]))
    assert linear.tolist() == pytest.approx([5.0, 0.5])


def test_outliers_by_hand() -> None:
    """1, 1, 1, 1, 6: mean 2, variance (4 * 1 + 16) / 4 = 5; 6 lies 4 / sqrt(5) = 1.789 deviations above."""
    scores = torch.tensor([1.0, 1.0, 1.0, 1.0, 6.0])
    assert outliers(scores, 1.78).tolist() == [False, False, False, False, True]
    assert not outliers(scores, 4 / math.sqrt(5) + 1e-3).any()
    assert outliers(scores, -1.0).all()
    assert outliers(torch.tensor([3.0]), 0.0).tolist() == [False]


class Tangled(nn.Module):
    """Defined in another order than used; one BatchNorm behind a sum, one behind a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = nn.Conv2d(4, 4, 1), nn.Conv2d(3, 4, 1)
        self.norm, self.after_sum = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.hidden, self.flat, self.out = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm(self.first(images))
        x = self.after_sum(x + self.second(x))
        logits: Tensor = self.out(self.flat(self.hidden(x.mean((2, 3)))))
        return logits


def test_pairs_are_layers_that_pass_a_tensor_on() -> None:
    model = Tangled()
    assert normalised_layers(model, torch.rand(2, 3, 8, 8)) == [("first", "norm"), ("hidden", "flat")]
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def _planted(net: TinyNet) -> TinyNet:
    """Return a net in which one of 16 channels amplifies a thousand times as much as the others, for nothing."""
    with torch.no_grad():
        conv, norm = net.features[3], net.features[4]
        assert isinstance(conv.weight, Tensor)
        conv.weight[5] *= 1000.0
        net.head.weight[:, 20:24] = 0.0
        assert isinstance(norm, nn.BatchNorm2d)
    return net


def test_the_planted_channel_is_pruned_and_dead(net: TinyNet, data: ImageData) -> None:
    """One huge value among 16 lies (16 - 1) / sqrt(16) = 3.75 deviations above the mean: u = 3 prunes it alone."""
    stolen = _planted(net)
    attacked = attack(stolen, data, attack_value("clp", protocol="paper"), device="cpu")
    norm = attacked.model.get_submodule("features.4")
    assert isinstance(norm, nn.BatchNorm2d)
    assert (norm.weight == 0).nonzero().flatten().tolist() == [5]
    assert norm.bias[5] == 0
    metrics = attacked.record.metrics
    assert (metrics["u"], metrics["pruned"], metrics["channels"]) == (3.0, 1, 24)
    assert attacked.record.images == 21 * len(data)


def test_sound_takes_the_smallest_u_within_the_budget(net: TinyNet, data: ImageData) -> None:
    free = attack(net, data, attack_value("clp", ba_drop=1.0), device="cpu")
    assert free.record.metrics["u"] == 0.0
    given = attack(net, data, attack_value("clp", u=1.1), device="cpu")
    assert given.record.metrics["u"] == 1.1
    assert given.curve is not None
    assert 1.1 in given.curve.values
