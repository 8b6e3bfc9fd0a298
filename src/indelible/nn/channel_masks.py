"""Masks on channels, and how they fold away: the network with a mask and the folded network compute the same.

Two places to mask:

- the inputs of one layer (:func:`masked_inputs`, :func:`fold_inputs`): a pruned channel is not read any more. The fold
  sets the layer's weights for these inputs to zero, which is exact for any network whose weights are parameters;
- the scale of every neuron (:class:`MaskedNetwork`, :func:`prune_neurons`): the weight of a BatchNorm channel, or in a
  network without BatchNorm the weights of an output of a convolution or linear layer. The bias is not masked:
  y = m * w * x + b, as in ANP (Wu & Wang, NeurIPS 2021, Equation 3). The last layer is spared: its outputs are the
  classes, and so is a layer that shares its weight.

Layers that share a weight share its mask. A module in two places, or a parameter tied across modules, stays one.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from indelible.base.errors import InputError
from indelible.nn.layers import batch_norms
from indelible.nn.surgery import call_with
from indelible.nn.taps import FeatureReader, trace


@contextmanager
def masked_inputs(model: nn.Module, reader: FeatureReader, keep: Tensor) -> Iterator[None]:
    """Inside the block, the reader's inputs are multiplied by ``keep`` (C,), one factor for each channel.

    So are those of layers that share its weight, since the fold changes theirs as well.
    """
    layer = model.get_submodule(reader.name)
    factors = reader.spread(keep)
    if isinstance(layer, _ConvNd):
        factors = factors.view(1, -1, *[1] * len(layer.kernel_size))

    def multiply(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0] * factors.to(args[0]), *args[1:])

    weight = _foldable(layer, reader.name)
    with ExitStack() as hooks:
        for one in model.modules():
            if _own(one).get("weight") is weight:
                hooks.enter_context(one.register_forward_pre_hook(multiply))
        yield


def _foldable(layer: nn.Module, name: str) -> nn.Parameter:
    """Return the weight that a mask on the layer's inputs folds into."""
    weight = _own(layer).get("weight")
    if weight is None:
        raise InputError(
            f"the last feature map is read by {name!r}, whose weight is computed from other parameters (weight or "
            "spectral normalisation): no mask can be written into it. Remove the parametrisation first, or choose an "
            "attack that prunes nothing, such as ft."
        )
    return weight


@torch.no_grad()
def fold_inputs(model: nn.Module, reader: FeatureReader, keep: Tensor) -> None:
    """Multiply the reader's weights by ``keep`` (C,), so that the mask is not needed any more."""
    layer = model.get_submodule(reader.name)
    weight = _foldable(layer, reader.name)
    factors = reader.spread(keep).to(weight)
    if not isinstance(layer, _ConvNd):
        weight.mul_(factors)
        return
    # (outputs, inputs / groups, ...): the outputs of group g read the g-th part of the inputs.
    by_group = factors.view(layer.groups, 1, -1).expand(-1, weight.shape[0] // layer.groups, -1)
    weight.mul_(by_group.reshape(weight.shape[0], weight.shape[1], *[1] * len(layer.kernel_size)))


@dataclass(frozen=True)
class Neurons:
    """The neurons of one layer."""

    weight: str  # name of the parameter whose first axis runs over the neurons
    bias: str | None  # name of their biases
    count: int


def neurons_of(model: nn.Module, images: Tensor) -> tuple[Neurons, ...]:
    """Return what a mask can scale: BatchNorm channels, else the outputs of convolutions and inner linear layers.

    ``images`` are a small batch, as the model expects it; it shows which layer comes last.
    """
    names = [name for name, layer in batch_norms(model) if layer.affine]
    seen = set()
    if not names:
        calls = [call for call in trace(model, images) if isinstance(call.layer, nn.Linear | _ConvNd)]
        names = list(dict.fromkeys(call.place[0] for call in calls if not isinstance(call.layer, _ConvTransposeNd)))
        # Spare the last layer, and what shares its weight: its outputs are the classes.
        seen = {id(_own(call.layer).get("weight")) for call in calls[-1:]}
    found = []
    for name in names:
        own = _own(model.get_submodule(name))
        weight, bias = own.get("weight"), own.get("bias")
        # Layers that share a weight share its mask. A weight that is computed from others (weight norm) takes none.
        if weight is None or id(weight) in seen:
            continue
        prefix = f"{name}." if name else ""
        moved = bias is not None and id(bias) not in seen  # a shared bias gets the noise of one layer, the first
        found.append(Neurons(f"{prefix}weight", f"{prefix}bias" if moved else None, len(weight)))
        seen |= {id(weight), id(bias)}
    if not found:
        raise InputError(
            f"{type(model).__name__} has no BatchNorm, no convolution and no inner linear layer whose channels could "
            "be masked. Choose an attack that needs none, such as ft."
        )
    return tuple(found)


def _own(layer: nn.Module) -> dict[str, nn.Parameter]:
    return dict(layer.named_parameters(recurse=False))


class MaskedNetwork(nn.Module):
    """A frozen copy of a network whose neurons are scaled by a mask that can be trained: y = m * w * x + b."""

    def __init__(self, model: nn.Module, neurons: Sequence[Neurons]) -> None:
        super().__init__()
        self.network = copy.deepcopy(model).requires_grad_(False)
        self.neurons = tuple(neurons)
        place = next(model.parameters()).device
        self.mask = nn.Parameter(torch.ones(sum(unit.count for unit in neurons), device=place))

    def forward(self, images: Tensor, noise: Tensor | None = None) -> Any:
        """Return the network's output: (m + d) * w * x + (1 + e) * b, with ``noise`` (2, neurons) = d, e."""
        mask = self.mask if noise is None else self.mask + noise[0]
        changed: dict[str, Tensor] = {}
        sizes = [unit.count for unit in self.neurons]
        relative = [None] * len(sizes) if noise is None else torch.split(1.0 + noise[1], sizes)
        for unit, factors, shift in zip(self.neurons, torch.split(mask, sizes), relative, strict=True):
            weight = self.network.get_parameter(unit.weight)
            changed[unit.weight] = weight * factors.view(-1, *[1] * (weight.ndim - 1))
            if shift is not None and unit.bias is not None:
                changed[unit.bias] = self.network.get_parameter(unit.bias) * shift
        return call_with(self.network, changed, images)


@torch.no_grad()
def prune_neurons(model: nn.Module, neurons: Sequence[Neurons], factors: Tensor) -> None:
    """Multiply the weights of all neurons by ``factors`` (neurons,), 0 for those that are pruned."""
    for unit, part in zip(neurons, torch.split(factors, [unit.count for unit in neurons]), strict=True):
        weight = model.get_parameter(unit.weight)
        weight.mul_(part.view(-1, *[1] * (weight.ndim - 1)).to(weight))
