"""Adversarial parametric perturbation: its size, a scope that applies it, and the gradient at the worst neighbour.

Paper: Gan et al., ICCV 2023, Equation (5) and lines 6 and 7 of Algorithm 1:

    delta = eps * ||theta||_2 * grad / ||grad||_2        g = g + alpha * gradient of L at theta + delta

| norm | meaning | source |
|---|---|---|
| ``"tensor"`` | each tensor by itself: eps * ||w_l|| * g_l / ||g_l|| | the authors' code (reproduces the tables) |
| ``"global"`` | one norm over all perturbed weights together | the paper's text |
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from indelible.base.errors import UnknownNameError
from indelible.nn.collectives import LOCAL, GradientSync
from indelible.nn.layers import perturbable_parameters

Norm = Literal["tensor", "global"]
NORMS: tuple[Norm, ...] = ("tensor", "global")


def adversarial_delta(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], eps: float, norm: Norm = "tensor", *, replace: bool = False
) -> list[Tensor]:
    """Return the perturbation of each weight; zero where the gradient is zero. Nothing waits for the device.

    ``replace`` puts each delta into the list ``gradients`` where its gradient was: both together take the memory of
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

    A copy is kept: adding and subtracting again would drift by rounding. Deltas are freed one by one as copies are
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


@contextmanager
def same_randomness(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield a function that rewinds torch's generators to the start of the block.

    Passes before and after a rewind draw the same dropout masks, so that a perturbation found with one mask is tried
    with the same one. States are kept on the host: nothing waits for a device.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    host = torch.get_rng_state()
    accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind() -> None:
        torch.set_rng_state(host)
        if accelerator is not None:
            torch.cuda.set_rng_state(accelerator, device)

    yield rewind


def add_worst_neighbour_gradient(
    model: nn.Module, loss: Callable[[], Tensor], rows: int, *, alpha: float, eps: float, norm: Norm = "tensor",
    sync: GradientSync = LOCAL,
) -> Tensor:  # fmt: skip
    """Add the gradient of ``alpha * loss`` at the worst neighbour of the weights to those of ``model``.

    Added, not returned: a list of gradients would be one more copy of the weights.

    The weights are restored to the bit. ``loss`` passes the model and returns a mean over this process' part of
    ``rows`` rows of all processes together. With ``eps`` 0 the gradient is that at the weights themselves. Returns the
    loss at the worst neighbour, detached.
    """
    weights = perturbable_parameters(model)
    scope: AbstractContextManager[None] = nullcontext()
    with same_randomness(model) as rewind:
        if eps > 0:
            # No name is given to the gradients: once passed on, nobody else must keep them.
            scope = perturbed(
                weights,
                adversarial_delta(weights, sync.direction(loss(), rows, weights), eps, norm, replace=True),
            )
            rewind()
        with scope:
            found = loss()
            sync.add(alpha, found, rows, model)
    return found.detach()


def add_gradient_after_step(
    model: nn.Module, step: Callable[[], Tensor], loss: Callable[[], Tensor], rows: int, *, alpha: float, eps: float,
    norm: Norm = "tensor", sync: GradientSync = LOCAL,
) -> Tensor:  # fmt: skip
    """Add the gradients of ``alpha * step`` at the weights, and of ``alpha * loss`` where a step down ``step`` leads.

    The step is as long as a perturbation: ``eps`` times the norm of the weights. All else as in
    :func:`add_worst_neighbour_gradient`; returns the ``loss`` after the step, detached.
    """
    weights = perturbable_parameters(model)
    with same_randomness(model) as rewind:
        gradients = sync.direction(step(), rows, weights)
        for index, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            scaled = gradient * alpha
            weight.grad = scaled if weight.grad is None else weight.grad.add_(scaled)
            gradients[index] = -gradient
        rewind()
        with perturbed(weights, adversarial_delta(weights, gradients, eps, norm, replace=True)):
            found = loss()
            sync.add(alpha, found, rows, model)
    return found.detach()
