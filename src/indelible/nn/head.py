"""Find the last layer of a classifier, the one whose outputs are the classes, and what goes into it."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from indelible.nn.taps import Call, trace


def last_layer(model: nn.Module, images: Tensor) -> Call | None:
    """Return the last call of a linear layer or convolution; None if there is none.

    ``images`` (N, C, H, W) are passed once, as the model takes them.
    """
    calls = [call for call in trace(model, images) if isinstance(call.layer, nn.Linear | _ConvNd)]
    return calls[-1] if calls else None


@torch.no_grad()
def layer_inputs(model: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """Return the first argument that ``layer`` was called with last, while ``images`` pass through ``model``."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].detach()))
    try:
        model(images)
    finally:
        hook.remove()
    return seen[-1]
