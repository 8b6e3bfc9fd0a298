"""What processes that train one model exchange: averaged gradients and weights.

Everything here runs on any backend of ``torch.distributed`` that can all-reduce and broadcast, gloo on CPUs included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from indelible.data.augment import WHOLE, Share

Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors by their mean over processes, in place."""

Scale = Callable[[Tensor], Tensor]
"""Multiplies a loss by the gradient scale of a float16 run: what ``GradScaler.scale`` does."""


def own_only(_tensors: Sequence[Tensor]) -> None:
    """Average over one process: there is nothing to do."""


def unscaled(loss: Tensor) -> Tensor:
    """Scale for any precision but float16: there is nothing to do."""
    return loss


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


@dataclass(frozen=True)
class GradientSync:
    """How a process takes gradients of a loss whose rows it shares with other processes, or that float16 scales."""

    share: Share = WHOLE  # which rows this process has
    average: Average = own_only
    scale: Scale = unscaled  # scales a loss as that of the ordinary gradient was
    # The gradients in the parameters are averaged already, so that what is added to them must be averaged by itself.
    # Otherwise the caller averages the sum.
    averaged: bool = False

    def direction(self, loss: Tensor, rows: int, weights: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradient of ``loss``, the same in every process; its scale has no meaning.

        The loss is the mean over this process' part of ``rows`` rows of all processes together.
        """
        # Unscaled, it could vanish in float16. If it overflows, so does what is made of it, and the scaler leaves the
        # step out.
        total = self.scale(self.share.weight(rows) * loss)
        found = list(torch.autograd.grad(total, weights, materialize_grads=True))
        self.average(found)
        return found

    def add(self, factor: float, loss: Tensor, rows: int, model: nn.Module) -> None:
        """Add the gradient of ``factor * loss`` to those of ``model``; arguments as in :meth:`direction`."""
        total = self.scale(factor * self.share.weight(rows) * loss)
        if not self.averaged:
            total.backward()
            return
        # Not by ``backward``: that would set off the hooks of a ``DistributedDataParallel`` around the model.
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        found = torch.autograd.grad(total, weights, allow_unused=True)
        pairs = [(weight, gradient) for weight, gradient in zip(weights, found, strict=True) if gradient is not None]
        self.average([gradient for _, gradient in pairs])
        for weight, gradient in pairs:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


LOCAL = GradientSync()
"""One process, no scaling."""


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
    """Tell whether the processes' trainable weights differ, by their sums (waits for the device)."""
    sums = [weight.detach().double().sum() for weight in model.parameters() if weight.requires_grad]
    return processes() > 1 and bool(sums) and not alike(torch.stack(sums))


def alike(values: Tensor) -> bool:
    """Tell whether all processes have the same ``values`` (n,)."""
    ends = torch.cat([values, -values])
    distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
    highest, lowest = ends.chunk(2)
    return bool((highest == -lowest).all())
