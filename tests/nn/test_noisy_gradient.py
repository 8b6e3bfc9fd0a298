"""Gradients under weight noise: the loop against a transcription."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.seeding import generator
from indelible.nn.noisy_gradient import add_noisy_gradient, gaussian, trainable
from tests.conftest import TinyNet
from tests.settings import GroupNormNet, vit


def draws_for(net: nn.Module, count: int, sigma: float = 0.1) -> list[list[Tensor]]:
    return [gaussian(trainable(net), sigma, generator(5, draw)) for draw in range(count)]


def batch() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    return torch.rand(6, 3, 32, 32, generator=random, dtype=torch.float64), torch.arange(6) % 4


def transcribed(
    net: nn.Module, images: Tensor, labels: Tensor, noise: list[list[Tensor]], scale: float
) -> tuple[Tensor, list[Tensor]]:
    """Copy, add, differentiate, sum: nothing is restored because nothing is touched."""
    losses, total = images.new_zeros(()), [torch.zeros_like(weight) for weight in trainable(net)]
    for draw in noise:
        other = copy.deepcopy(net)
        with torch.no_grad():
            for weight, part in zip(trainable(other), draw, strict=True):
                weight.add_(part)
        loss = F.cross_entropy(other(images), labels)
        losses += loss.detach()
        for so_far, gradient in zip(total, torch.autograd.grad(loss, trainable(other)), strict=True):
            so_far.add_(scale * gradient)
    return losses, total


@pytest.mark.parametrize("build", [TinyNet, GroupNormNet, vit])
def test_gradients_equal_the_transcription(build: Callable[[], nn.Module]) -> None:
    net = build().double().train()
    images, labels = batch()
    noise = draws_for(net, 3)
    losses, expected = transcribed(net, images, labels, noise, 0.25)
    before = copy.deepcopy(net.state_dict())
    for _ in range(2):  # a second call adds to what is there, and finds the model as it was
        loss = add_noisy_gradient(net, images, labels, noise, 0.25)
    torch.testing.assert_close(loss, losses, rtol=1e-8, atol=1e-12)
    assert not loss.requires_grad
    for weight, gradient in zip(trainable(net), expected, strict=True):
        torch.testing.assert_close(weight.grad, 2 * gradient, rtol=1e-8, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_tied_frozen_and_twice_registered() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Sequential(nn.AvgPool2d(8), nn.Flatten())
            self.first, self.second = nn.Linear(48, 48, bias=False), nn.Linear(48, 48)
            self.second.weight = self.first.weight  # a tied parameter
            self.again = self.second  # a module under two names
            self.head = nn.Linear(48, 4)
            self.head.bias.requires_grad_(False)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(self.again(torch.tanh(self.second(self.first(self.flat(images))))))
            return logits

    net = Shared().double()
    images, labels = batch()
    noise = draws_for(net, 3)
    answers = net(images)
    _, expected = transcribed(net, images, labels, noise, 1.0)
    add_noisy_gradient(net, images, labels, noise, 1.0)
    for weight, gradient in zip(trainable(net), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-8, atol=1e-12)
    assert net.head.bias.grad is None
    assert net.second.weight is net.first.weight
    assert torch.equal(net(images), answers)


def test_noise_has_the_asked_size_and_is_repeatable() -> None:
    weights = [torch.zeros(100, 50), torch.zeros(200)]
    first, again = (gaussian(weights, 0.5, generator(3, "x")) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert [part.shape for part in first] == [weight.shape for weight in weights]
    assert float(torch.cat([part.flatten() for part in first]).std()) == pytest.approx(0.5, rel=0.05)
