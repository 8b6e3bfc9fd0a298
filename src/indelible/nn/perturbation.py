"""Adversarial parametric perturbation: its size, and a scope that applies it and restores the weights bit for bit.

Paper: Gan et al., ICCV 2023, Equation (5):  delta = eps * ||theta||_2 * grad / ||grad||_2

| norm | meaning | source |
|---|---|---|
| ``"tensor"`` | each tensor by itself: eps * ||w_l|| * g_l / ||g_l|| | the authors' code (reproduces the tables) |
| ``"global"`` | one norm over all perturbed weights together | the paper's text |
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from indelible.base.errors import UnknownNameError

__all__ = ["NORMS", "Norm", "adversarial_delta", "perturbed"]

Norm = Literal["tensor", "global"]
NORMS: tuple[Norm, ...] = ("tensor", "global")


def adversarial_delta(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], eps: float, norm: Norm = "tensor"
) -> list[Tensor]:
    """Return the perturbation of each weight; zero where the gradient is zero. Nothing waits for the device.

    Args:
        weights: theta, tensors of any shapes.
        gradients: The ascent gradient, shaped like ``weights``.
        eps: Size of the perturbation relative to the weights.
        norm: Over what the norms are taken.
    """
    if norm not in NORMS:
        raise UnknownNameError("norm", norm, NORMS)
    if not weights:
        return []
    with torch.no_grad():  # a graph over the norms would keep the gradients alive
        weight_norms = torch.stack(torch._foreach_norm(list(weights)))
        gradient_norms = torch.stack(torch._foreach_norm(list(gradients)))
        if norm == "global":
            weight_norms = torch.linalg.vector_norm(weight_norms).expand_as(weight_norms)
            gradient_norms = torch.linalg.vector_norm(gradient_norms).expand_as(gradient_norms)
        sizes = torch.where(gradient_norms > 0, eps * weight_norms / gradient_norms, torch.zeros_like(gradient_norms))
        return list(torch._foreach_mul(list(gradients), list(sizes.unbind())))


@contextmanager
def perturbed(weights: Sequence[Tensor], deltas: Sequence[Tensor]) -> Iterator[None]:
    """Inside the block, ``weights`` are ``weights + deltas``; afterwards they are what they were, to the bit.

    A copy is kept: adding and subtracting again would drift by rounding.
    """
    with torch.no_grad():
        originals = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            torch._foreach_add_(list(weights), list(deltas))
        del deltas  # nobody needs them inside the block: one copy of the weights is enough memory
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(weights), originals)
