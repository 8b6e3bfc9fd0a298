"""Penultimate features: what the last layer of a classifier reads, found by tracing a pass, never by name."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.outputs import logits_of
from indelible.nn.taps import trace
from indelible.train.evaluate import evaluating

__all__ = ["features_of", "last_layer"]


def last_layer(model: nn.Module, images: Tensor) -> str:
    """Return the name of the linear layer that gives the logits.

    Args:
        model: Any classifier.
        images: A small batch as the model takes it.
    """
    with evaluating(model):
        size = logits_of(model(images)).shape
    linear = [call for call in trace(model, images) if isinstance(call.layer, nn.Linear) and call.gave == size]
    if not linear:
        raise InputError(
            f"{type(model).__name__} has no linear layer that gives its {size[1]} logits, so that it has no "
            "penultimate features. Wrap its head into an nn.Linear."
        )
    return linear[-1].place[0]


def features_of(model: nn.Module, batches: Sequence[Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Return what the layer ``name`` reads, float (N, D), and the predicted classes, int64 (N,), on the CPU."""
    found: list[Tensor] = []
    layer = model.get_submodule(name)
    handle = layer.register_forward_pre_hook(lambda _, args: found.append(args[0].flatten(1)))
    answers = []
    try:
        with evaluating(model):
            answers = [logits_of(model(images)).argmax(1) for images in batches]
    finally:
        handle.remove()
    return torch.cat(found).float().cpu(), torch.cat(answers).cpu()
