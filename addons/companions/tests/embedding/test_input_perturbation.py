"""Projected ascent: it stays where it may be, and finds the worst input where that is known in closed form."""

import pytest
import torch
from torch import Tensor

from indelible.data.augment import Share
from indelible_companions.embedding.input_perturbation import ball_noise, projected, sign_ascent, small_noise
from tests.conftest import TinyNet


def test_projection_by_hand() -> None:
    origin = torch.tensor([0.5, 0.05, 0.98, 0.5])
    found = projected(torch.tensor([0.9, -0.3, 1.2, 0.52]), origin, 0.1)
    torch.testing.assert_close(found, torch.tensor([0.6, 0.0, 1.0, 0.52]))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_worst_input_of_a_linear_loss(noise: float) -> None:
    """loss = w . x is largest at clip(x + eps sign(w), 0, 1), wherever the search begins."""
    weight, origin = torch.randn(2, 3, 4, 4), torch.rand(2, 3, 4, 4)
    start = origin + noise * (2 * torch.rand_like(origin) - 1)
    found = sign_ascent(origin, start, lambda x: (weight * x).sum(), eps=0.1, step=0.03, steps=10)
    torch.testing.assert_close(found, (origin + 0.1 * weight.sign()).clamp(0, 1))
    assert not found.requires_grad


@pytest.mark.parametrize(("step", "steps"), [(0.002, 3), (0.5, 7)])
def test_it_never_leaves_the_ball_nor_the_range(step: float, steps: int) -> None:
    net, origin = TinyNet().eval(), torch.rand(4, 3, 32, 32)
    seen: list[Tensor] = []

    def loss(images: Tensor) -> Tensor:
        seen.append(images.detach())
        total: Tensor = net(images).square().sum()
        return total

    eps = 8 / 255
    start = origin + ball_noise(origin, eps, torch.Generator().manual_seed(1))
    found = sign_ascent(origin, start, loss, eps=eps, step=step, steps=steps)
    assert len(seen) == steps
    for images in (*seen, found):
        assert float((images - origin).abs().max()) <= eps + 1e-6
        assert 0.0 <= float(images.min()) <= float(images.max()) <= 1.0
    assert float(loss(found).detach()) > float(loss(seen[0]).detach())
    assert all(weight.grad is None for weight in net.parameters())


def test_noise_is_a_function_of_the_seed_and_dealt_out_to_processes() -> None:
    like = torch.zeros(6, 3, 8, 8)
    whole = ball_noise(like, 0.2, torch.Generator().manual_seed(5))
    assert -0.2 <= float(whole.min()) < -0.19 < 0.19 < float(whole.max()) <= 0.2
    assert abs(float(whole.mean())) < 0.02
    parts = [ball_noise(like[:3], 0.2, torch.Generator().manual_seed(5), Share(rank, 2)) for rank in (0, 1)]
    torch.testing.assert_close(parts[0], whole[0::2])
    torch.testing.assert_close(parts[1], whole[1::2])
    small = small_noise(like, 0.001, torch.Generator().manual_seed(5))
    assert float(small.std()) == pytest.approx(0.001, rel=0.1)
    assert small_noise(like.double(), 0.001, torch.Generator().manual_seed(5)).dtype == torch.float64
