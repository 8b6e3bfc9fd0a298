"""BatchNorm over the rows of all processes, for any BatchNorm layer and any backend.

``nn.SyncBatchNorm`` itself refuses tensors on the CPU, and asks for a network to be converted. The scope here needs
neither: inside it, the chosen layers normalise by the statistics of all processes' rows, with gradients through the
exchange, and keep their running statistics as one process on the joined batch would.

| layers | where the tensors are | who computes |
|---|---|---|
| ``nn.SyncBatchNorm`` | GPU | torch, unless ``all_layers`` |
| ``nn.SyncBatchNorm`` | CPU | this file |
| other BatchNorm | anywhere | torch, process by process; this file with ``all_layers`` |

A layer's ``forward`` runs as it is, with all its arguments, and only its call of
:func:`torch.nn.functional.batch_norm` in training mode is answered here (:class:`answering`): a user's own class may
have an activation behind the normalisation, or a condition beside the rows. A subclass of ``nn.SyncBatchNorm`` with a
``forward`` of its own is left to torch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from indelible.base.errors import InputError
from indelible.nn.collectives import gathered, processes
from indelible.nn.layers import BatchNorm, batch_norms
from indelible.nn.surgery import standing_in

_TORCH_CAN = {"cuda", "xpu", "hpu"}

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]
"""(positional, keyword) arguments of :func:`torch.nn.functional.batch_norm` -> the rows, normalised.

torch hands the rows and the running statistics over by position, the rest by name.
"""


def has_own_forward(layer: BatchNorm) -> bool:
    """Tell whether the layer's class brings a ``forward`` of its own instead of torch's."""
    return type(layer).forward not in {BatchNorm.forward, nn.SyncBatchNorm.forward}


class answering(TorchFunctionMode):  # noqa: N801 - used as a function: with answering(...)
    """Inside the block, ``answer`` answers every call of BatchNorm in training mode; ``calls`` counts all calls."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer, self.calls = answer, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.calls += func is F.batch_norm
        if func is F.batch_norm and kwargs["training"]:
            return self.answer(args, kwargs)
        return func(*args, **kwargs)


def joint_statistics(rows: Tensor, group: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return (mean, biased variance, count) of each channel over the rows of all processes.

    Every process brings mean, variance and count of its own rows; merged, they are those of the joined rows:

        mean = sum_r n_r mean_r / N        var = sum_r n_r (var_r + (mean_r - mean)^2) / N

    Sums of squares would need no merging, but cancel badly in float32. ``rows`` (N, C, ...) are this process' rows;
    processes may have different numbers of them.
    """
    axes = [axis for axis in range(rows.ndim) if axis != 1]
    variance, mean = torch.var_mean(rows, dim=axes, correction=0)
    count = mean.new_full((1,), rows.numel() // rows.shape[1])
    every = gathered(torch.cat([mean, variance, count]), group)
    channels = len(mean)
    means, variances, counts = every[:, :channels], every[:, channels:-1], every[:, -1:].detach()
    total = counts.sum(0)
    joint = (counts * means).sum(0) / total
    return joint, (counts * (variances + (means - joint) ** 2)).sum(0) / total, total


class _Forward:
    """Stands in for a layer's ``forward``."""

    def __init__(self, layer: BatchNorm, before: Any, torch_can: bool, together: bool) -> None:
        self.layer, self.before, self.torch_can, self.together = layer, before, torch_can, together

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer, own = self.layer, has_own_forward(self.layer)
        ordinary = self.before or type(layer).forward.__get__(layer)
        on_device = any(
            value.device.type in _TORCH_CAN for value in (*args, *kwargs.values()) if torch.is_tensor(value)
        )
        if self.together and self.torch_can and (own or on_device):
            return ordinary(*args, **kwargs)
        # That of nn.SyncBatchNorm refuses tensors on the CPU.
        forward = ordinary if own else partial(BatchNorm.forward, layer)
        if not self.together:
            return forward(*args, **kwargs)
        with answering(partial(_jointly, getattr(layer, "process_group", None))) as mode:
            result = forward(*args, **kwargs)
        if layer.training and not mode.calls:
            raise InputError(
                f"{type(layer).__name__} is a BatchNorm whose forward does not call torch.nn.functional.batch_norm, so "
                "that its statistics cannot be those of all processes. Call it there, or set `sync_batchnorm=False`."
            )
        return result


def _jointly(group: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """Answer a call of BatchNorm by the rows of all processes; see :data:`Answer`."""
    rows, *running = given
    mean, variance, count = joint_statistics(_exact(rows), group)
    share = named["momentum"]
    for kept, found in zip(running, (mean, variance * count / (count - 1)), strict=True):
        if kept is not None:
            kept.lerp_(found.detach().to(kept), torch.as_tensor(share).to(kept))
    shape = (1, -1) + (1,) * (rows.ndim - 2)
    y = (_exact(rows) - mean.view(shape)) * torch.rsqrt(variance + named["eps"]).view(shape)
    if named["weight"] is not None:
        y = y * named["weight"].view(shape)
    if named["bias"] is not None:
        y = y + named["bias"].view(shape)
    return y.to(rows.dtype)


def _exact(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in {torch.float16, torch.bfloat16} else rows


@contextmanager
def synchronised_statistics(model: nn.Module, *, all_layers: bool = False, together: bool = True) -> Iterator[None]:
    """Inside the block, layers normalise by the rows of all processes; with one process nothing changes.

    ``all_layers``: every BatchNorm layer, not only ``nn.SyncBatchNorm``. ``together`` is False where every process has
    the same rows: each then normalises by its own, ``nn.SyncBatchNorm`` included, or the rows would be counted several
    times.
    """
    forwards: dict[nn.Module, Callable[..., Any]] = {}
    for _, layer in batch_norms(model) if processes() > 1 else []:
        native = isinstance(layer, nn.SyncBatchNorm)
        if native or all_layers:
            forwards[layer] = _Forward(layer, layer.__dict__.get("forward"), native, together)
    with standing_in(forwards):
        yield


def shares_statistics(layer: BatchNorm, forward: Any = None) -> bool:
    """Tell whether a layer's statistics are those of all processes, given what stands in for its forward."""
    if isinstance(forward, _Forward):
        return forward.together
    return processes() > 1 and isinstance(layer, nn.SyncBatchNorm)
