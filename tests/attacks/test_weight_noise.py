"""Weight noise: its size by hand, one direction for all sigmas, another seed another draw."""

import pytest
import torch
from torch import nn

from indelible.attacks import WeightNoise, attack
from indelible.attacks.weight_noise import shake
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.data.images import ImageData
from tests.conftest import TinyNet
from tests.values import attack_value


def test_settings() -> None:
    value = WeightNoise()
    assert (value.sigma, value.ba_drop) == (None, 0.02)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match=r"sigma must be at least 0, got -0\.1"):
        WeightNoise(sigma=-0.1)
    with pytest.raises(InputError, match="'sigma' of WeightNoise must be a finite number, got nan"):
        WeightNoise(sigma=float("nan"))
    with pytest.raises(InputError, match="one protocol, 'sound', got 'paper'"):
        WeightNoise(protocol="paper")


def test_noise_by_hand() -> None:
    """(3, 4) has the root mean square sqrt(12.5) = 3.5355; at sigma 0.1, z = (1, -2) adds (0.35355, -0.70711)."""
    layer = nn.Linear(2, 1)
    layer.weight.data, layer.bias.data = torch.tensor([[3.0, 4.0]]), torch.zeros(1)
    shake(layer, [torch.tensor([[1.0, -2.0]]), torch.tensor([5.0])], 0.1)
    assert layer.weight.flatten().tolist() == pytest.approx([3.353553, 3.292893])
    assert layer.bias.tolist() == [0.0]


def test_sigma_is_the_relative_change(data: ImageData) -> None:
    """||noise|| / ||w|| of a layer of 40,000 weights is sigma within a few parts in a hundred."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 200), nn.ReLU(), nn.Linear(200, 4))
    attacked = attack(wide, data, attack_value("weight-noise", sigma=0.3), device="cpu")
    before, after = (model.get_submodule("2").weight for model in (wide, attacked.model))
    assert isinstance(before, torch.Tensor)
    assert isinstance(after, torch.Tensor)
    assert float((after - before).detach().norm() / before.detach().norm()) == pytest.approx(0.3, rel=0.03)
    assert attacked.curve is not None
    assert 0.3 in attacked.curve.values


def test_one_direction_for_all_sigmas_and_one_for_each_seed(net: TinyNet, data: ImageData) -> None:
    curve = attack(net, data, "weight-noise", device="cpu", seed=1).curve
    assert curve is not None
    small, large = (curve.build(sigma).state_dict()["head.weight"] - net.head.weight for sigma in (0.1, 0.5))
    torch.testing.assert_close(large, 5 * small, rtol=1e-3, atol=1e-5)
    digests = [
        tensor_digest(
            attack(net, data, attack_value("weight-noise", sigma=0.1), device="cpu", seed=seed).model.state_dict()
        )
        for seed in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_the_budget(net: TinyNet, data: ImageData) -> None:
    assert attack(net, data, attack_value("weight-noise", ba_drop=1.0), device="cpu").record.metrics["sigma"] == 1.0
