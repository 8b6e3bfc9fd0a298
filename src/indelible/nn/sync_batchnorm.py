"""BatchNorm over the rows of all processes, for any BatchNorm layer and any backend.

``nn.SyncBatchNorm`` itself refuses tensors on the CPU, and asks for a network to be converted. The scope here needs
neither: inside it, the chosen layers normalise by the statistics of all processes' rows, with gradients through the
exchange, and keep their running statistics as one process on the joined batch would.

| layers | where the tensors are | who computes |
|---|---|---|
| ``nn.SyncBatchNorm`` | GPU | torch, unless ``all_layers`` |
| ``nn.SyncBatchNorm`` | CPU | this file |
| other BatchNorm | anywhere | torch, process by process; this file with ``all_layers`` |
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from indelible.nn.collectives import gathered, processes
from indelible.nn.layers import BatchNorm, batch_norms

__all__ = ["joint_statistics", "shares_statistics", "synchronised_statistics"]

_TORCH_CAN = {"cuda", "xpu", "hpu"}


def joint_statistics(rows: Tensor, group: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return (mean, biased variance, count) of each channel over the rows of all processes.

    Every process brings mean, variance and count of its own rows; merged, they are those of the joined rows:

        mean = sum_r n_r mean_r / N        var = sum_r n_r (var_r + (mean_r - mean)^2) / N

    Sums of squares would need no merging, but cancel badly in float32.

    Args:
        rows: (N, C, ...), this process' rows; processes may have different numbers of them.
        group: The processes; by default all.
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

    def __call__(self, x: Tensor) -> Tensor:
        layer = self.layer
        if not self.together:
            return BatchNorm.forward(layer, x)
        fixed = not layer.training and layer.running_mean is not None
        if fixed or (self.torch_can and x.device.type in _TORCH_CAN):
            ordinary: Tensor = (self.before or type(layer).forward.__get__(layer))(x)
            return ordinary
        exact = x.float() if x.dtype in {torch.float16, torch.bfloat16} else x
        mean, variance, count = joint_statistics(exact, getattr(layer, "process_group", None))
        if layer.training:
            _keep_running(layer, mean.detach(), variance.detach() * count / (count - 1))
        shape = (1, -1) + (1,) * (x.ndim - 2)
        y = (exact - mean.view(shape)) * torch.rsqrt(variance + layer.eps).view(shape)
        if layer.affine:
            y = y * layer.weight.view(shape) + layer.bias.view(shape)
        return y.to(x.dtype)


def _keep_running(layer: BatchNorm, mean: Tensor, variance: Tensor) -> None:
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked.add_(1)
    # Without momentum torch keeps the plain average over all batches.
    share = 1.0 / layer.num_batches_tracked.double() if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean), torch.as_tensor(share).to(layer.running_mean))
    layer.running_var.lerp_(variance.to(layer.running_var), torch.as_tensor(share).to(layer.running_var))


@contextmanager
def synchronised_statistics(model: nn.Module, *, all_layers: bool = False, together: bool = True) -> Iterator[None]:
    """Inside the block, layers normalise by the rows of all processes; with one process nothing changes.

    Args:
        model: Any module.
        all_layers: Every BatchNorm layer, not only ``nn.SyncBatchNorm``.
        together: False where every process has the same rows: each then normalises by its own, ``nn.SyncBatchNorm``
            included, or the rows would be counted several times.
    """
    switched: list[tuple[BatchNorm, Any]] = []
    try:
        for _, layer in batch_norms(model) if processes() > 1 else []:
            native = isinstance(layer, nn.SyncBatchNorm)
            if native or all_layers:
                before = layer.__dict__.get("forward")
                switched.append((layer, before))
                layer.__dict__["forward"] = _Forward(layer, before, native, together)
        yield
    finally:
        for layer, before in switched:
            del layer.__dict__["forward"]
            if before is not None:
                layer.__dict__["forward"] = before


def shares_statistics(layer: BatchNorm, forward: Any = None) -> bool:
    """Tell whether a layer's statistics are those of all processes: by its type, or by the scope above.

    Args:
        layer: The layer.
        forward: What stood in for its ``forward``, if anything.
    """
    if isinstance(forward, _Forward):
        return forward.together
    return processes() > 1 and isinstance(layer, nn.SyncBatchNorm)
