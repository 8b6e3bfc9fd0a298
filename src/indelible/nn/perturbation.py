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
    weights: Sequence[Tensor], gradients: Sequence[Tensor], eps: float, norm: Norm = "tensor", *, replace: bool = False
) -> list[Tensor]:
    """Return the perturbation of each weight; zero where the gradient is zero. Nothing waits for the device.

    Args:
        weights: theta, tensors of any shapes.
        gradients: The ascent gradient, shaped like ``weights``.
        eps: Size of the perturbation relative to the weights.
        norm: Over what the norms are taken.
        replace: Put each delta into the list ``gradients`` where its gradient was: both together take the memory of
            one copy of the weights and of one tensor more, instead of two copies.
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
        deltas = gradients if replace and isinstance(gradients, list) else list(gradients)
        # Not in place: autograd may give two weights one and the same tensor.
        for index, size in enumerate(sizes.unbind()):
            deltas[index] = deltas[index] * size
        return deltas


@contextmanager
def perturbed(weights: Sequence[Tensor], deltas: Sequence[Tensor]) -> Iterator[None]:
    """Inside the block, ``weights`` are ``weights + deltas``; afterwards they are what they were, to the bit.

    A copy is kept: adding and subtracting again would drift by rounding. Deltas are let go of one by one as copies are
    made; if the caller keeps none, both together never take more than one copy of the weights and one tensor.
    """
    left, originals = list(reversed(deltas)), list[Tensor]()
    del deltas
    try:
        with torch.no_grad():
            for weight in weights:
                originals.append(weight.detach().clone())
                weight.add_(left.pop())
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(weights)[: len(originals)], originals)
