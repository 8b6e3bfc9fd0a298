"""Magnitude pruning: which weights fall at a share, by hand; biases and normalisation stay; the budget."""

import pytest
import torch
from torch import nn

from indelible.attacks import MagnitudePruning, attack
from indelible.attacks.magnitude import prune_smallest, smallest_first
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from tests.conftest import TinyNet
from tests.values import attack_value


def test_settings() -> None:
    value = MagnitudePruning()
    assert (value.share, value.ba_drop) == (None, 0.02)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match=r"in \[0, 1\), got 1"):
        MagnitudePruning(share=1.0)
    with pytest.raises(InputError, match="one protocol, 'sound', got 'paper'"):
        MagnitudePruning(protocol="paper")


class TwoLayers(nn.Module):
    """Two linear layers with BatchNorm between them; only their weights matter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(2, 2)


def _two_layers() -> TwoLayers:
    """Ten weights in two layers, of sizes 1 .. 10 with mixed signs, and biases smaller than all."""
    model = TwoLayers()
    for layer, weights in (
        (model.first, [[9.0, -2.0], [4.0, -7.0], [1.0, 10.0]]),
        (model.second, [[-3.0, 8.0], [6.0, -5.0]]),
    ):
        layer.weight.data, layer.bias.data = torch.tensor(weights), torch.full_like(layer.bias.data, 0.01)
    return model


def test_the_smallest_weights_of_the_whole_network_fall() -> None:
    model = _two_layers()
    order = smallest_first(model)
    assert order.tolist() == [4, 1, 6, 2, 9, 8, 3, 7, 0, 5]
    prune_smallest(model, order, 0.4)  # sizes 1, 2, 3, 4: three of the first layer, one of the second
    assert model.first.weight.tolist() == [[9.0, 0.0], [0.0, -7.0], [0.0, 10.0]]
    assert model.second.weight.tolist() == [[0.0, 8.0], [6.0, -5.0]]
    assert model.first.bias.tolist() == pytest.approx([0.01] * 3)
    assert model.norm.weight.tolist() == [1.0] * 3


@pytest.mark.parametrize(("share", "zeros"), [(0.0, 0), (0.19, 1), (0.7, 7), (0.95, 9)])
def test_shares_are_rounded_down(share: float, zeros: int) -> None:
    model = _two_layers()
    prune_smallest(model, smallest_first(model), share)
    assert sum(layer.weight.eq(0).sum().item() for layer in (model.first, model.second)) == zeros


def test_the_budget(net: TinyNet, data: ImageData) -> None:
    free = attack(net, data, attack_value("magnitude", ba_drop=1.0), device="cpu")
    weights = 8 * 27 + 16 * 72 + 4 * 64
    metrics = free.record.metrics
    assert (metrics["share"], metrics["weights"], metrics["pruned"]) == (0.99, weights, int(0.99 * weights))
    tight = attack(net, data, attack_value("magnitude", ba_drop=0.0), device="cpu").curve
    assert tight is not None
    within = [
        value for value, found in zip(tight.values, tight.accuracies, strict=True) if found >= tight.accuracies[0]
    ]
    assert tight.chosen == max(within)
