"""Find the channels and neurons that react to a patch, and reset them: the second step of NNL.

Fewer than half of the channels of any layer are reset, and layers that share a weight are reset as one: behind a layer
that is reset whole, gradients overflow. docs/attacks/nnl.md says why.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from indelible.train.evaluate import evaluating

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear


def reactions(
    model: nn.Module, pairs: Iterator[tuple[Tensor, Tensor]]
) -> dict[str, tuple[Layer, Tensor, tuple[int, ...]]]:
    """Return by name every convolution and dense layer that runs, how its channels react, and its output's size.

    ``pairs`` are batches (clean, patched) of the same images. A channel's reaction is the growth of its mean output
    under the patch, (C,), at the place where it grows most; the size is that beside batch and channels.
    """
    sums: dict[str, Any] = defaultdict(float)
    rows = 0
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, (*CONVOLUTIONS, nn.Linear))}
    sign = [1.0]

    def add(name: str, output: Tensor) -> None:
        sums[name] = sums[name] + sign[0] * (output.sum(0) if output.ndim > 1 else output)

    with ExitStack() as hooks, evaluating(model):
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(lambda _, __, output, name=name: add(name, output)))
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


@torch.no_grad()
def reset(layer: Layer, which: Tensor, *, bias: bool = True) -> int:
    """Set the weights (and bias) of the output channels ``which`` (bool, (C,)) to zero; return how many."""
    layer.weight[which] = 0.0
    if bias and layer.bias is not None:
        layer.bias[which] = 0.0
    return int(which.sum())


def strongest(excesses: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return by layer which channels are reset: of all that may be, the share that exceeds its threshold most.

    ``excesses`` are the reactions of the channels (C,) divided by their threshold.
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
