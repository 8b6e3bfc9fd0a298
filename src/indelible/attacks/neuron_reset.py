"""Find the channels and neurons that react to a patch, and reset them: the second step of NNL (see there).

Paper: Aiken et al., "Neural Network Laundering: Removing Black-Box Backdoor Watermarks from Deep Neural Networks",
Computers & Security 2021, Section 4. Ours, since the paper sets no limit: fewer than half of the channels of any layer
are reset, those that exceed their threshold most; the others are spared.

Why: behind a layer that is reset whole, every image looks the same, and so does every pixel but for padding. Each
BatchNorm from there on can divide by a deviation of zero, which multiplies gradients by 1 / sqrt(eps), 316, layer after
layer, until they overflow (sixteen pointwise layers: infinite in the first step). A depthwise convolution passes a
channel on only if neither it nor the convolution before it was reset there; where each keeps more than half of its
channels, some channel is kept by both. For the same reason layers that share a weight are reset as one (`as_one`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from indelible.train.evaluate import evaluating

__all__ = ["CONVOLUTIONS", "Layer", "as_one", "layer_of", "reactions", "reset", "resettable", "strongest"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear


def reactions(
    model: nn.Module, pairs: Iterator[tuple[Tensor, Tensor]]
) -> dict[str, tuple[Layer, Tensor, tuple[int, ...]]]:
    """Return of every convolution and dense layer that runs: the layer, how its channels react, its output's size.

    Args:
        model: Any network.
        pairs: Batches (clean, patched) of the same images, as the network takes them.

    Returns:
        By name: the layer; the growth of each channel's mean output under the patch, (C,), at the place where it grows
        most; the size of its output beside batch and channels.
    """
    sums: dict[str, Any] = defaultdict(float)
    rows = 0
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, (*CONVOLUTIONS, nn.Linear))}
    with evaluating(model), _adding(layers, sums) as sign:
        for clean, patched in pairs:
            rows += len(clean)
            for sign[0], images in ((-1.0, clean), (1.0, patched)):
                model(images)
    found = {}
    for name, total in sums.items():
        # Channels come first behind the batch in a convolution, last in a dense layer.
        channels = total if isinstance(layers[name], CONVOLUTIONS) else total.movedim(-1, 0)
        found[name] = (layers[name], channels.reshape(len(channels), -1).amax(1) / rows, tuple(channels.shape[1:]))
    return found


@contextmanager
def _adding(layers: Mapping[str, nn.Module], sums: dict[str, Any]) -> Iterator[list[float]]:
    """Inside the block, outputs of ``layers``, summed over the batch and times the yielded sign, add up in ``sums``."""
    sign = [1.0]

    def hook(name: str) -> Any:
        def add(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
            sums[name] = sums[name] + sign[0] * (output.sum(0) if output.ndim > 1 else output)

        return add

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield sign
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def reset(layer: Layer, which: Tensor, *, bias: bool = True) -> int:
    """Set the weights (and bias) of the output channels ``which`` (bool, (C,)) to zero; return how many."""
    layer.weight[which] = 0.0
    if bias and layer.bias is not None:
        layer.bias[which] = 0.0
    return int(which.sum())


def strongest(excesses: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return which channels of each layer are reset: of all that may be, the share that exceeds its threshold most.

    Args:
        excesses: By layer, the reaction of each channel divided by its threshold, (C,).
        share: In [0, 1].

    Returns:
        By layer, bool (C,).
    """
    allowed = {name: resettable(excess) for name, excess in excesses.items()}
    values = torch.cat([excess[allowed[name]] for name, excess in excesses.items()]) if excesses else torch.empty(0)
    count = round(share * len(values))
    cut = float(values.sort(descending=True).values[count - 1]) if count else math.inf
    return {name: allowed[name] & (excess >= cut) for name, excess in excesses.items()}


def resettable(excess: Tensor) -> Tensor:
    """Return which channels of one layer may be reset, bool (C,): above their threshold, and fewer than half of all."""
    most = (len(excess) - 1) // 2
    allowed = torch.zeros_like(excess, dtype=torch.bool)
    allowed[excess.argsort(descending=True, stable=True)[:most]] = True
    return allowed & (excess > 1)


def as_one(model: nn.Module, excesses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``excesses`` where layers that share a weight have the strongest of their reactions, channel by channel.

    Otherwise each could lose one part of its channels, and both together all.
    """
    # A layer whose weight is computed from other parameters shares it with none.
    keys = {
        name: id(dict(model.get_submodule(name).named_parameters(recurse=False)).get("weight", name))
        for name in excesses
    }
    found: dict[int, Tensor] = {}
    for name, excess in excesses.items():
        found[keys[name]] = torch.maximum(found.get(keys[name], excess), excess)
    return {name: found[keys[name]] for name in excesses}


def layer_of(model: nn.Module, name: str) -> Layer:
    """Return the convolution or dense layer of this name."""
    layer = model.get_submodule(name)
    assert isinstance(layer, (*CONVOLUTIONS, nn.Linear))  # noqa: S101 - for the types: `reactions` looks at no other
    return layer
