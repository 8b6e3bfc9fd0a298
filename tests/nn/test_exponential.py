"""Exponential weighting: numbers by hand, a naive reference with its gradients, and models that come back whole."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.exponential import exponential_weights, weighted_tensors, weighting
from tests.conftest import TinyNet


def naive(theta: Tensor, temperature: float) -> Tensor:
    """The paper's equation as it is written."""
    weights = torch.exp(theta.abs() * temperature)
    return theta * weights / weights.max()


def test_by_hand() -> None:
    """T = 2: |theta| = 0.5, 0.25, 0 against the largest, 0.5: factors 1, e^-0.5, e^-1."""
    theta = torch.tensor([[0.5, -0.25], [0.0, 0.25]], dtype=torch.float64)
    factor = math.exp(-0.5)
    expected = torch.tensor([[0.5, -0.25 * factor], [0.0, 0.25 * factor]], dtype=torch.float64)
    torch.testing.assert_close(exponential_weights(theta, 2.0), expected)
    assert torch.equal(exponential_weights(theta, 0.0), theta)


def test_equals_the_equation_with_gradients() -> None:
    first = torch.randn(4, 3, 3, dtype=torch.float64).requires_grad_()
    second = first.detach().clone().requires_grad_()
    direction = torch.randn(4, 3, 3, dtype=torch.float64)
    (exponential_weights(first, 2.0) * direction).sum().backward()
    (naive(second, 2.0) * direction).sum().backward()
    torch.testing.assert_close(first.grad, second.grad)
    assert torch.autograd.gradcheck(lambda theta: exponential_weights(theta, 2.0), (first,))


def test_large_weights_do_not_overflow() -> None:
    theta = torch.tensor([[1000.0, 1.0]])
    assert torch.equal(exponential_weights(theta, 2.0), torch.tensor([[1000.0, 0.0]]))
    assert not naive(theta, 2.0).isfinite().all()


def test_kernels_and_matrices_only() -> None:
    net = TinyNet()
    assert [name for _, name in weighted_tensors(net)] == ["weight"] * 3
    assert {type(module) for module, _ in weighted_tensors(net)} == {nn.Conv2d, nn.Linear}
    net.head.requires_grad_(False)
    assert {type(module) for module, _ in weighted_tensors(net)} == {nn.Conv2d}


@pytest.mark.parametrize("leave", ["plain", "folded"])
def test_the_model_computes_with_ew_and_comes_back_whole(net: TinyNet, leave: Any) -> None:
    net.eval()
    twin, objects = copy.deepcopy(net), list(net.named_parameters())
    images = torch.rand(4, 3, 32, 32)
    with weighting(net, 2.0, leave=leave):
        inside = net(images)
        assert {id(weight) for weight in net.parameters()} == {id(weight) for _, weight in objects}
        inside.sum().backward()
    assert [name for name, _ in net.named_parameters()] == [name for name, _ in objects]
    assert all(now is then for (_, now), (_, then) in zip(net.named_parameters(), objects, strict=True))
    assert [type(layer) for layer in net.modules()] == [type(layer) for layer in twin.modules()]
    assert list(net.state_dict()) == list(twin.state_dict())
    with torch.no_grad():
        outside = net(images)
        for (name, now), then in zip(net.named_parameters(), twin.named_parameters(), strict=True):
            if then[1].ndim > 1:
                assert torch.equal(now, exponential_weights(then[1], 2.0) if leave == "folded" else then[1]), name
                then[1].copy_(exponential_weights(then[1], 2.0))
            else:
                assert torch.equal(now, then[1]), name
        torch.testing.assert_close(inside.detach(), twin(images))
    assert torch.allclose(outside, inside, atol=1e-6) == (leave == "folded")


def test_an_exception_takes_it_off(net: TinyNet) -> None:
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(RuntimeError, match="in the middle"), weighting(net, 2.0, leave="folded"):
        raise RuntimeError("in the middle")
    assert list(net.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_tied_weights_stay_tied_and_are_folded_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.out.weight = self.into.weight

        def forward(self, rows: Tensor) -> Tensor:
            logits: Tensor = self.out(self.into(rows))
            return logits

    net = Tied()
    theta = net.into.weight.detach().clone()
    with weighting(net, 2.0, leave="folded"):
        net(torch.rand(2, 6))
        assert len(list(net.parameters())) == 1
    assert net.into.weight is net.out.weight
    torch.testing.assert_close(net.into.weight.detach(), exponential_weights(theta, 2.0))


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))), "parametrised already"),
        (nn.Sequential(nn.LSTM(3, 3)), "recurrent"),
        (nn.Linear(3, 3).requires_grad_(False), "Unfreeze"),
    ],
)
def test_refusals(net: nn.Module, words: str) -> None:
    with pytest.raises(InputError, match=words), weighting(net):
        pass
