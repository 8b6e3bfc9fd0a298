"""Quantisation: a row by hand, at several bits; one scale for each output; few levels in a real network."""

import pytest
import torch
from torch import nn

from indelible.attacks import Quantisation, attack
from indelible.attacks.quantise import quantise, quantised
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from tests.conftest import TinyNet
from tests.values import attack_value


def test_settings() -> None:
    value = Quantisation()
    assert (value.bits, value.ba_drop) == (None, 0.02)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match=r"bits must lie in \[2, 16\], got 1"):
        Quantisation(bits=1)
    with pytest.raises(InputError, match="one protocol, 'sound', got 'paper'"):
        Quantisation(protocol="paper")


def test_a_row_by_hand() -> None:
    """Three bits: levels -3 .. 3. The row's largest is 3, the scale 1; 0.5 and 1.5 go to the even neighbours 0 and 2.

    Its second row is ten times as large, with its own scale 10; a row of zeros stays.
    """
    row = torch.tensor([3.0, -1.2, 0.4, 0.5, 1.5, -2.6])
    wanted = torch.tensor([3.0, -1.0, 0.0, 0.0, 2.0, -3.0])
    rounded = quantised(torch.stack([row, 10 * row, 0 * row]), 3)
    torch.testing.assert_close(rounded, torch.stack([wanted, 10 * wanted, 0 * wanted]))
    # Two bits: levels -1, 0, 1 of scale 3. Eight bits: 127 levels a side.
    assert quantised(row[None], 2).tolist() == [[3.0, 0.0, 0.0, 0.0, 0.0, -3.0]]
    eight = quantised(torch.tensor([[127.0, 1.4, -63.6]]), 8)
    assert eight.tolist() == [[127.0, 1.0, -64.0]]


def test_the_axis_of_outputs() -> None:
    weight = torch.tensor([[3.0, 30.0], [1.2, 12.0]])
    assert quantised(weight, 3, 1).tolist() == [[3.0, 30.0], [1.0, 10.0]]
    # With one scale a row 3 of 30 is lost: 30 / 3 = 10, and 3 / 10 rounds to nothing.
    assert quantised(weight, 3, 0).tolist() == [[0.0, 30.0], [0.0, 12.0]]


def test_channels_of_a_network_have_few_levels(net: TinyNet) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    quantise(net, 3.0)
    for name in ("features.0.weight", "features.3.weight", "head.weight"):
        for channel, was in zip(net.state_dict()[name], before[name], strict=True):
            assert len(channel.unique()) <= 7
            assert float((channel - was).abs().max()) <= float(was.abs().max()) / 6 + 1e-6  # half a step
    assert torch.equal(net.head.bias, before["head.bias"])
    norm = net.features[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert torch.equal(norm.weight, before["features.1.weight"])


def test_the_fewest_bits_within_the_budget(net: TinyNet, data: ImageData) -> None:
    free = attack(net, data, attack_value("quantise", ba_drop=1.0), device="cpu")
    assert free.record.metrics["bits"] == 3
    assert free.curve is not None
    assert (free.curve.name, free.curve.values) == ("weight_bits", (3.0, 4.0, 5.0, 6.0, 8.0))
    given = attack(net, data, attack_value("quantise", bits=7), device="cpu")
    assert given.record.metrics["bits"] == 7
    quantise(net, 7)
    assert torch.equal(given.model.state_dict()["head.weight"], net.head.weight)
