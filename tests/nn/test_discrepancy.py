"""MMD of tiny samples by hand, and against two slow loops."""

import math

import pytest
import torch

from indelible.nn.discrepancy import gaussian_mmd


def test_two_points_by_hand() -> None:
    """x = {0}, y = {2}: the squared distance is 4 and so is its mean. One kernel: 1 + 1 - 2 exp(-4 / 4)."""
    first, second = torch.tensor([[0.0]]), torch.tensor([[2.0]])
    assert float(gaussian_mmd(first, second, kernels=1)) == pytest.approx(2 - 2 / math.e)
    # Five: widths 1, 2, 4, 8, 16.
    five = sum(2 - 2 * math.exp(-4 / width) for width in (1, 2, 4, 8, 16))
    assert float(gaussian_mmd(first, second)) == pytest.approx(five)


def test_three_points_by_hand() -> None:
    """x = {0, 1}, y = {3}: distances 1, 9, 4; the mean over ordered pairs is 28 / 6, with one kernel w = 14 / 3."""
    first, second = torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0]])
    k = [math.exp(-distance * 3 / 14) for distance in (1, 9, 4)]
    within = (2 + 2 * k[0]) / 4
    assert float(gaussian_mmd(first, second, kernels=1)) == pytest.approx(within + 1 - 2 * (k[1] + k[2]) / 2)


def test_against_two_loops() -> None:
    first, second = torch.randn(5, 7, dtype=torch.float64) + 10, torch.randn(4, 7, dtype=torch.float64) * 2 + 11
    points = [*first, *second]
    apart = [float((a - b).square().sum()) for a in points for b in points]
    width = sum(apart) / (9 * 8) / 4

    def kernel(a: torch.Tensor, b: torch.Tensor) -> float:
        return sum(math.exp(-float((a - b).square().sum()) / (width * 2**at)) for at in range(5))

    def mean(xs: torch.Tensor, ys: torch.Tensor) -> float:
        return sum(kernel(x, y) for x in xs for y in ys) / (len(xs) * len(ys))

    slow = mean(first, first) + mean(second, second) - 2 * mean(first, second)
    assert float(gaussian_mmd(first, second)) == pytest.approx(slow)


def test_equal_samples_have_none_and_distant_ones_little_more_to_gain() -> None:
    points = torch.randn(6, 3)
    assert float(gaussian_mmd(points, points)) == pytest.approx(0.0, abs=1e-6)
    still = torch.zeros(4, 3, requires_grad=True)
    found = gaussian_mmd(still, torch.zeros(4, 3))
    found.backward()
    assert float(found.detach()) == 0.0
    assert still.grad is not None
    assert bool(still.grad.isfinite().all())  # no width, and still no NaN
    near, far = (float(gaussian_mmd(points, points + shift)) for shift in (1.0, 100.0))
    assert 0 < near < far < 10


def test_its_gradient_moves_samples_apart() -> None:
    first, second = torch.randn(8, 2), torch.randn(8, 2, requires_grad=True)
    before = gaussian_mmd(first, second)
    (gradient,) = torch.autograd.grad(before, [second])
    assert float(gaussian_mmd(first, second.detach() + 0.1 * gradient)) > float(before.detach())
