"""Gaussian noise on weights: draws, and gradients under them - one by one, or several at once.

The gradient of ``scale * sum_g L(theta + G_g)`` is added to the weights' gradients. The plain loop is the reference;
the vectorised path (``torch.func``) gives the same numbers up to rounding. Which is faster depends on the network, the
rows and the device: docs/methods/cw.md has measurements.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import perturbed
from indelible.nn.statistics import untracked
from indelible.nn.surgery import call_with


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that may change, each once: those that noise goes to in training."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def gaussian(weights: Sequence[Tensor], sigma: float, random: torch.Generator) -> list[Tensor]:
    """Draw G ~ N(0, sigma^2 I), shaped like ``weights``; ``random`` lives on the CPU, whatever the device."""
    sizes = [weight.numel() for weight in weights]
    flat = torch.randn(sum(sizes), generator=random, dtype=weights[0].dtype).mul_(sigma).to(weights[0].device)
    return [part.view(weight.shape) for part, weight in zip(flat.split(sizes), weights, strict=True)]


def add_noisy_gradient(
    model: nn.Module, images: Tensor, labels: Tensor, noise: Sequence[Sequence[Tensor]],
    scale: float | Tensor, *, vectorised: bool = False,
) -> Tensor:  # fmt: skip
    """Add the gradient of ``scale * sum_g L(theta + G_g, B)`` and return the sum of the losses, detached.

    ``noise`` holds G_g of each draw, in the order of :func:`trainable`. Weights are restored to the bit, running
    statistics left alone. ``vectorised`` passes all draws at once; memory grows with their number.
    """
    with untracked(model):
        if vectorised:
            return _at_once(model, images, labels, noise, scale)
        total, weights = images.new_zeros(()), trainable(model)
        for draw in noise:
            with perturbed(weights, draw):
                loss = F.cross_entropy(logits_of(model(images)), labels)
                (scale * loss).backward()
            total += loss.detach()
        return total


def _at_once(
    model: nn.Module, images: Tensor, labels: Tensor, noise: Sequence[Sequence[Tensor]], scale: float | Tensor
) -> Tensor:
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    weights = trainable(model)
    moved = [weight.detach() + torch.stack([draw[index] for draw in noise]) for index, weight in enumerate(weights)]

    def loss(changed: list[Tensor]) -> tuple[Tensor, Tensor]:
        found = F.cross_entropy(logits_of(call_with(model, dict(zip(names, changed, strict=True)), images)), labels)
        return scale * found, found  # scaled before the gradient is taken: afterwards is too late in float16

    # vmap has no rule for the fused attention kernels; the plain one is made of operations that it has rules for. For
    # some others (pooling in channels_last) it falls back to a loop and says so: the caller chose the path already.
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        gradients, (_, losses) = vmap(grad_and_value(loss, has_aux=True), randomness="different")(moved)
    for weight, gradient in zip(weights, gradients, strict=True):
        own = gradient.sum(0)
        weight.grad = own if weight.grad is None else weight.grad + own
    total: Tensor = losses.detach().sum()
    return total
