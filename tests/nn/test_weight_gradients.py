"""Weight gradients as products against torch's own, in double precision, and the scope that brings them in."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.nn import weight_gradients
from indelible.nn.weight_gradients import is_deep, product_weight_gradients, weight_gradient

LAST = torch.channels_last


def _rows(*shape: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=random, dtype=torch.float64).contiguous(memory_format=LAST)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 3), (1, 1), (1, 1)), ((3, 2), (2, 1), (0, 1)), ((5, 5), (2, 2), (2, 2))],
)
def test_the_sum_as_it_is_written(kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> None:
    """One entry after the other, on a layer of 2 x 3 channels."""
    layer = nn.Conv2d(2, 3, kernel, stride, padding, bias=False).double()
    rows = _rows(4, 2, 7, 6)
    gradient = torch.randn_like(layer(rows))
    padded = nn.functional.pad(rows, (padding[1], padding[1], padding[0], padding[0]))
    expected = torch.zeros_like(layer.weight)
    for o, i, a, b in torch.cartesian_prod(*map(torch.arange, expected.shape)).tolist():
        for y in range(gradient.shape[2]):
            for x in range(gradient.shape[3]):
                seen = padded[:, i, stride[0] * y + a, stride[1] * x + b]
                with torch.no_grad():
                    expected[o, i, a, b] += (gradient[:, o, y, x] * seen).sum()
    found = weight_gradient(rows, gradient, kernel, stride, padding)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    assert found.is_contiguous(memory_format=LAST)


class _Net(nn.Module):
    """Two deep convolutions, one of them strided and with a bias, and one that is not deep."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.third = nn.Conv2d(8, 8, 3, stride=2, padding=1)

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.third(self.second(self.first(rows).relu()).relu())
        return out


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> _Net:
    monkeypatch.setattr(weight_gradients, "_CHANNELS", 8)
    torch.manual_seed(0)
    return _Net().double().to(memory_format=LAST)  # type: ignore[call-overload,no-any-return]


def test_all_gradients_are_torchs(deep: _Net, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.Size] = []

    def watched(rows: Tensor, gradient: Tensor, *rest: Any) -> Tensor:
        used.append(gradient.shape)
        return weight_gradient(rows, gradient, *rest)

    monkeypatch.setattr(weight_gradients, "weight_gradient", watched)
    rows = _rows(4, 3, 6, 6).requires_grad_()
    direction = torch.randn_like(deep(rows))
    wanted = [rows, *deep.parameters()]
    expected = torch.autograd.grad(deep(rows), wanted, direction)
    with product_weight_gradients(deep):
        found = torch.autograd.grad(deep(rows), wanted, direction)
    assert len(used) == 2
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_scope_leaves_nothing_behind(deep: _Net) -> None:
    before = copy.deepcopy(deep.state_dict())
    with product_weight_gradients(deep):
        assert "forward" in deep.second.__dict__
        assert "forward" not in deep.first.__dict__
    with pytest.raises(RuntimeError), product_weight_gradients(deep):
        deep(_rows(4, 2, 6, 6))  # two channels instead of three
    assert all("forward" not in layer.__dict__ for layer in deep.modules())
    assert all(torch.equal(value, before[name]) for name, value in deep.state_dict().items())


def test_where_it_applies() -> None:
    """Measured: from 256 channels, up to 64 positions, not for 1 x 1 kernels, and only in channels_last."""
    rows = torch.zeros(2, 256, 8, 8).contiguous(memory_format=LAST)
    assert is_deep(nn.Conv2d(256, 256, 3, padding=1), rows)
    assert not is_deep(nn.Conv2d(256, 256, 1), rows)
    assert not is_deep(nn.Conv2d(256, 128, 3, padding=1), rows)
    assert not is_deep(nn.Conv2d(256, 256, 3, padding=2), rows)  # 10 x 10 positions
    assert not is_deep(nn.Conv2d(256, 256, 3, padding=1), rows.contiguous())
    assert not is_deep(nn.Conv2d(256, 256, 3, padding=1), rows.half())


def test_other_convolutions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_gradients, "_CHANNELS", 2)

    class Own(nn.Conv2d):
        def forward(self, rows: Tensor) -> Tensor:
            return super().forward(rows) + 1

    others = [
        nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, dilation=2), nn.Conv2d(4, 4, 3, padding="same"), Own(4, 4, 3),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    ]  # fmt: skip
    with product_weight_gradients(nn.ModuleList(others)):
        assert all("forward" not in layer.__dict__ for layer in others)
