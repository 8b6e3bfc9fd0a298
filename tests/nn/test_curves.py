"""The Bezier curve: points worked out by hand, the network's own code on them, gradients to the bend only."""

import copy

import pytest
import torch
from torch import nn

from indelible.base.errors import InputError
from indelible.nn.curves import BezierCurve, bezier_point
from tests.attacks.networks import make_network
from tests.conftest import TinyNet


def test_point_by_hand() -> None:
    """t = 1/4: (9/16) a + (6/16) b + (1/16) c, with a = 16, b = 0, c = 32 gives 9 + 0 + 2; with b = 16 six more."""
    a, c = torch.tensor([16.0, 16.0]), torch.tensor([32.0, 32.0])
    assert torch.equal(bezier_point(a, torch.tensor([0.0, 16.0]), c, 0.25), torch.tensor([11.0, 17.0]))


def line(start: float, end: float) -> tuple[nn.Linear, nn.Linear]:
    ends = nn.Linear(1, 2, bias=False), nn.Linear(1, 2, bias=False)
    for layer, value in zip(ends, (start, end), strict=True):
        nn.init.constant_(layer.weight, value)
    return ends


def test_it_starts_as_the_straight_line() -> None:
    """With b = (a + c) / 2 the curve is (1 - t) a + t c: from 2 to 10, a quarter of the way is 4."""
    curve = BezierCurve(*line(2.0, 10.0))
    assert torch.equal(curve.bend.get_parameter("weight"), torch.full((2, 1), 6.0))
    assert torch.equal(curve.point(0.25)["weight"], torch.full((2, 1), 4.0))
    assert torch.equal(curve(torch.ones(1, 1), 0.25), torch.full((1, 2), 4.0))


def test_gradient_reaches_the_bend_only() -> None:
    """d phi / d b = 2 t (1 - t) = 3/8 at t = 1/4; the input is 2 and the loss the sum: 3/4 for each weight."""
    curve = BezierCurve(*line(2.0, 10.0))
    curve(torch.full((1, 1), 2.0), 0.25).sum().backward()
    torch.testing.assert_close(curve.bend.get_parameter("weight").grad, torch.full((2, 1), 0.75))
    assert [name for name, weight in curve.named_parameters() if weight.requires_grad] == ["bend.weight"]


def test_the_ends_are_the_ends_to_the_bit_and_points_are_ordinary(net: TinyNet) -> None:
    end = copy.deepcopy(net)
    with torch.no_grad():
        for weight in end.parameters():
            weight.add_(torch.randn_like(weight))
    curve = BezierCurve(net, end)
    for t, model in ((0.0, net), (1.0, end)):
        point = curve.at(t)
        assert type(point) is TinyNet
        assert all(
            torch.equal(weight, dict(model.named_parameters())[name]) for name, weight in point.named_parameters()
        )
        assert all(weight.requires_grad for weight in point.parameters())
    images = torch.rand(4, 3, 32, 32)
    curve.eval()
    middle = curve.at(0.3).eval()
    torch.testing.assert_close(curve(images, 0.3), middle(images))


def test_tied_weights_are_one_point() -> None:
    """A network that uses one matrix twice goes on using one."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(2, 2, bias=False)
            self.two = nn.Linear(2, 2, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))  # type: ignore[no-any-return]

    start, end = Tied(), Tied()
    nn.init.constant_(start.one.weight, 0.0)
    nn.init.constant_(end.one.weight, 1.0)
    curve = BezierCurve(start, end)
    # Half way every weight is 1/2: (1, 1) -> (1, 1) -> (1, 1).
    assert torch.equal(curve(torch.ones(1, 2), 0.5), torch.ones(1, 2))
    point = curve.at(0.5)
    assert point.one.weight is point.two.weight  # type: ignore[union-attr]


@pytest.mark.parametrize("network", ["one module twice", "tied parameters"])
def test_shared_parameters_train_as_one(network: str) -> None:
    """Several steps on a network that shares parameters: each equals a copy at t, and the bend stays made of leaves.

    By the chain rule the bend's gradient is 2 t (1 - t) times that of the point.
    """
    start, t = make_network(network).eval(), 0.25
    end = copy.deepcopy(start)
    with torch.no_grad():
        for weight in end.parameters():
            weight.add_(0.1)
    curve = BezierCurve(start, end).eval()
    optimiser = torch.optim.SGD(curve.bend.parameters(), lr=0.1)
    for images in torch.rand(3, 4, 3, 32, 32):
        copied = curve.at(t).eval()
        expected = torch.autograd.grad(copied(images).square().sum(), list(copied.parameters()))
        optimiser.zero_grad()
        curve(images, t).square().sum().backward()
        for weight, gradient in zip(curve.bend.parameters(), expected, strict=True):
            assert weight.grad is not None
            torch.testing.assert_close(weight.grad, 2 * t * (1 - t) * gradient)
        optimiser.step()
    names = [sorted(dict(model.named_parameters(remove_duplicate=False))) for model in (curve.bend, start)]
    assert names[0] == names[1]
    assert all(isinstance(weight, nn.Parameter) for weight in curve.bend.parameters())
    assert len(list(curve.bend.parameters())) == len(list(start.parameters()))


def test_refusals(net: TinyNet) -> None:
    with pytest.raises(InputError, match="same network"):
        BezierCurve(net, TinyNet(width=4))
    with pytest.raises(InputError, match=r"t must lie in \[0, 1\] .* got 1\.5"):
        BezierCurve(net, net).at(1.5)
