"""BatchNorm's running statistics: left alone by extra passes, and kept as they are where a user froze them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from indelible.nn.layers import BatchNorm, batch_norms

__all__ = ["frozen_batch_norms", "kept_frozen", "reestimating", "untracked"]


@contextmanager
def untracked(model: nn.Module) -> Iterator[None]:
    """Inside the block, no pass changes the running statistics of ``model``.

    Layers in training mode normalise by their batch as usual; layers in evaluation mode keep using what they have.
    """
    switched = [layer for _, layer in batch_norms(model) if layer.training and layer.track_running_stats]
    try:
        for layer in switched:
            layer.track_running_stats = False
        yield
    finally:
        for layer in switched:
            layer.track_running_stats = True


@contextmanager
def reestimating(model: nn.Module) -> Iterator[None]:
    """Inside the block, passes in training mode average the statistics anew, every batch alike.

    Weights that were changed from outside leave running statistics that belong to other weights: forget them, pass
    ordinary images inside the block, and they fit again. Layers in evaluation mode keep theirs.
    """
    switched = [
        (layer, layer.momentum) for _, layer in batch_norms(model) if layer.training and layer.track_running_stats
    ]
    try:
        for layer, _ in switched:
            layer.reset_running_stats()
            layer.momentum = None  # the plain average of all batches
        with torch.no_grad():
            yield
    finally:
        for layer, momentum in switched:
            layer.momentum = momentum


def frozen_batch_norms(model: nn.Module) -> list[BatchNorm]:
    """Return the BatchNorm layers that the user froze.

    Frozen is a layer in evaluation mode inside a model in training mode, or one whose affine parameters must not
    change: moving statistics under fixed gamma and beta would change what the layer does all the same.
    """
    found = []
    for _, layer in batch_norms(model):
        affine = list(layer.parameters(recurse=False))
        fixed = bool(affine) and not any(weight.requires_grad for weight in affine)
        if fixed or (model.training and not layer.training):
            found.append(layer)
    return found


@contextmanager
def kept_frozen(model: nn.Module) -> Iterator[None]:
    """Inside the block, frozen BatchNorm layers stay in evaluation mode, also when ``model.train()`` is called."""
    frozen = [(layer, layer.training) for layer in frozen_batch_norms(model)]
    try:
        for layer, _ in frozen:
            layer.eval()
            layer.__dict__["train"] = _deaf(layer)
        yield
    finally:
        for layer, training in frozen:
            del layer.__dict__["train"]
            layer.train(training)


class _deaf:  # noqa: N801 - stands for a method
    """A ``train`` that changes nothing."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, mode: bool = True) -> nn.Module:  # noqa: ARG002 - the signature of nn.Module.train
        return self.layer
