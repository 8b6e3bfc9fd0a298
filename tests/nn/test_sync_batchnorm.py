"""Synchronised statistics of a user's own BatchNorm classes; tests/train/test_processes.py has two real processes."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.sync_batchnorm import synchronised_statistics


class Conditioned(nn.BatchNorm2d):
    """More than the rows go in, more than normalised rows come out, and calls are counted."""

    calls: Tensor

    def __init__(self, channels: int, **settings: Any) -> None:
        super().__init__(channels, **settings)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, shift: Tensor, *, slope: float = 1.0) -> Tensor:  # type: ignore[override]
        self.calls += 1
        return torch.relu(slope * super().forward(x) + shift)


class ByHand(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean((0, 2, 3), keepdim=True)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Statistics of the rows of a second process: put them into the list."""
    others: list[Tensor] = []
    monkeypatch.setattr("indelible.nn.sync_batchnorm.processes", lambda: 2)
    monkeypatch.setattr(
        "indelible.nn.sync_batchnorm.gathered", lambda own, _group: torch.stack([own, others.pop(0).to(own)])
    )
    return others


def statistics(rows: Tensor) -> Tensor:
    """Mean, biased variance, count of each of three channels, in plain sums."""
    flat = rows.movedim(1, 0).reshape(3, -1)
    mean = flat.sum(1) / flat.shape[1]
    variance = ((flat - mean[:, None]) ** 2).sum(1) / flat.shape[1]
    return torch.cat([mean, variance, torch.tensor([float(flat.shape[1])])])


@pytest.mark.parametrize("settings", [{}, {"momentum": None}, {"affine": False}], ids=["plain", "average", "bare"])
def test_a_class_of_the_users_own_keeps_what_its_forward_does(second: list[Tensor], settings: Any) -> None:
    """As one process on the joined rows: output, running statistics, the layer's own buffer."""
    torch.manual_seed(0)
    rows, shift = torch.randn(7, 3, 2, 2, dtype=torch.float64), torch.randn(3, 1, 1, dtype=torch.float64)
    layer = Conditioned(3, **settings).double()
    joined = copy.deepcopy(layer)
    for _ in range(2):
        second.append(statistics(rows[4:]).double())
        with synchronised_statistics(layer, all_layers=True):
            found = layer(rows[:4], shift, slope=2.0)
        torch.testing.assert_close(found, joined(rows, shift, slope=2.0)[:4], rtol=1e-6, atol=1e-6)
    for name, value in joined.named_buffers():
        torch.testing.assert_close(layer.get_buffer(name), value, rtol=1e-6, atol=1e-6)
    assert "forward" not in layer.__dict__


def test_in_evaluation_and_alone_it_is_the_layer_itself(second: list[Tensor]) -> None:
    """No exchange: nothing was put into the list."""
    layer, rows, shift = Conditioned(3), torch.randn(4, 3, 2, 2), torch.zeros(3, 1, 1)
    layer(rows, shift)
    wanted = layer.eval()(rows, shift)
    with synchronised_statistics(layer, all_layers=True):
        assert torch.equal(layer(rows, shift=shift), wanted)
    joined = copy.deepcopy(layer.train())
    with synchronised_statistics(layer, all_layers=True, together=False):
        assert torch.equal(layer(rows, shift), joined(rows, shift))


def test_statistics_that_cannot_be_exchanged_are_refused(second: list[Tensor]) -> None:
    layer = ByHand(3)
    with (
        synchronised_statistics(layer, all_layers=True),
        pytest.raises(InputError, match=r"ByHand is a BatchNorm .* does not call torch.nn.functional.batch_norm"),
    ):
        layer(torch.zeros(2, 3, 1, 1))
