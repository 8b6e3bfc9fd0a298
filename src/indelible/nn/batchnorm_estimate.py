"""Running statistics of BatchNorm layers, estimated again for weights that have none of their own.

A network whose weights were interpolated, averaged or moved by hand still carries the mean and variance of the weights
it came from. One pass over clean images gives it its own: over batches i of n_i images,

    mean = sum_i n_i mean_i / sum_i n_i,    var = sum_i n_i var_i / sum_i n_i

with the batch's mean and its variance as the layer itself computes them (divided by n - 1). This is the cumulative
average of Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018, Section 3.2.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.layers import batch_norms

__all__ = ["estimate_statistics"]


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor], *, moving: bool = False) -> int:
    """Estimate the running statistics of all BatchNorm layers from ``batches``, in place.

    Args:
        model: Any network; nothing is done to one without BatchNorm that keeps statistics.
        batches: float images (N, C, H, W) as the network takes them, on its device.
        moving: Do not start anew and do not weigh batches equally: let every layer go on with its own moving average
            over the batches, as in training.

    Returns:
        The number of images passed forward.

    All other layers are in evaluation mode meanwhile (no dropout); modes and momenta are as before afterwards.
    """
    layers = [layer for _, layer in batch_norms(model) if layer.track_running_stats and layer.running_mean is not None]
    if not layers:
        return 0
    modes = [(module, module.training) for module in model.modules()]
    momenta = [layer.momentum for layer in layers]
    seen = 0
    model.eval()
    try:
        for layer in layers:
            layer.train()
            if not moving:
                layer.reset_running_stats()
        for images in batches:
            seen += len(images)
            if not moving:
                for layer in layers:
                    layer.momentum = len(images) / seen
            model(images)
    finally:
        for module, training in modes:
            module.training = training
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
    if not seen:
        raise InputError("statistics are estimated from images, but there were none. Give at least two.")
    return seen
