"""Gaussian noise on weights: draws, and gradients under them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import perturbed
from indelible.nn.statistics import untracked


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that may change, each once: those that noise goes to in training."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def gaussian(weights: Sequence[Tensor], sigma: float, random: torch.Generator) -> list[Tensor]:
    """Draw G ~ N(0, sigma^2 I), shaped like ``weights``; ``random`` lives on the CPU, whatever the device."""
    sizes = [weight.numel() for weight in weights]
    flat = torch.randn(sum(sizes), generator=random, dtype=weights[0].dtype).mul_(sigma).to(weights[0].device)
    return [part.view(weight.shape) for part, weight in zip(flat.split(sizes), weights, strict=True)]


def add_noisy_gradient(
    model: nn.Module, images: Tensor, labels: Tensor, noise: Sequence[Sequence[Tensor]], scale: float | Tensor
) -> Tensor:  # fmt: skip
    """Add the gradient of ``scale * sum_g L(theta + G_g, B)`` and return the sum of the losses, detached.

    ``noise`` holds G_g of each draw, in the order of :func:`trainable`. Weights are restored to the bit, running
    statistics left alone.
    """
    total, weights = images.new_zeros(()), trainable(model)
    with untracked(model):
        for draw in noise:
            with perturbed(weights, draw):
                loss = F.cross_entropy(logits_of(model(images)), labels)
                (scale * loss).backward()
            total += loss.detach()
    return total
