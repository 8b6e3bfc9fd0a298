"""What processes that train one model exchange: averaged gradients, statistics with gradients through them, weights.

Everything here runs on any backend of ``torch.distributed`` that can all-reduce and broadcast, gloo on CPUs included.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

__all__ = ["Average", "add_averaged_gradient", "average", "differ", "gathered", "processes", "send_state"]

Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors by their mean over processes, in place."""


def processes() -> int:
    """Return how many processes ``torch.distributed`` joins here; one when it joins none."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def average(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all processes, in one reduction for all tensors of a type.

    The result is the same to the bit in every process.
    """
    world = processes()
    if world == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
        distributed.all_reduce(flat)
        flat.div_(world)  # gloo has no operation that averages
        with torch.no_grad():
            for tensor, part in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
                tensor.copy_(part.view_as(tensor))


def add_averaged_gradient(model: nn.Module, loss: Tensor, mean: Average = average) -> None:
    """Add the gradient of ``loss``, averaged over processes, to the parameters' gradients.

    Not by ``backward``: that would set off the hooks of a ``DistributedDataParallel`` around the model.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(weight, gradient) for weight, gradient in zip(parameters, found, strict=True) if gradient is not None]
    mean([gradient for _, gradient in pairs])
    for weight, gradient in pairs:
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


class _Sum(torch.autograd.Function):
    """The sum over processes; its gradient is the sum of all processes' gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = tensor.contiguous().clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total, group=ctx.group)
        return total, None


def gathered(tensor: Tensor, group: Any = None) -> Tensor:
    """Stack the tensors of all processes of ``group``: (world, ...), with gradients back to where they came from."""
    world = distributed.get_world_size(group)
    rank = distributed.get_rank(group)
    # Zeros elsewhere: a sum that gathers. It needs one operation that every backend has, forward and backward.
    own = torch.nn.functional.one_hot(torch.tensor(rank), world).to(tensor)
    stacked: Tensor = _Sum.apply(own.view(-1, *(1,) * tensor.ndim) * tensor, group)  # type: ignore[no-untyped-call]
    return stacked


def send_state(model: nn.Module) -> None:
    """Give every process the weights and buffers of the first."""
    if processes() == 1:
        return
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if isinstance(tensor, Tensor):
                whole = tensor.contiguous()
                distributed.broadcast(whole, 0)
                tensor.copy_(whole)


def differ(model: nn.Module) -> bool:
    """Tell whether the processes' trainable weights have come apart, by their sums (waits for the device)."""
    sums = [weight.detach().double().sum() for weight in model.parameters() if weight.requires_grad]
    if processes() == 1 or not sums:
        return False
    ends = torch.stack([*sums, *(-value for value in sums)])
    distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
    highest, lowest = ends.chunk(2)
    return bool((highest != -lowest).any())
