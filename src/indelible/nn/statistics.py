"""BatchNorm's running statistics: left alone by extra passes, kept where a user froze them, estimated anew."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.layers import BatchNorm, batch_norms
from indelible.nn.surgery import kept, kept_modes

Mode = Literal["train", "eval"]
MODES: tuple[Mode, ...] = ("train", "eval")


@contextmanager
def untracked(model: nn.Module) -> Iterator[None]:
    """Inside the block, no pass changes the running statistics of ``model``.

    Layers in training mode normalise by their batch as usual; layers in evaluation mode keep using what they have.
    """
    switched = _tracking(model)
    with kept(switched, "track_running_stats"):
        for layer in switched:
            layer.track_running_stats = False
        yield


@contextmanager
def attacking(model: nn.Module, mode: Mode) -> Iterator[None]:
    """Inside the block, passes of ``model`` leave its running statistics alone; every layer's mode is restored.

    ``"eval"`` normalises by the running statistics and drops nothing out; ``"train"`` leaves the layers as they are:
    BatchNorm normalises by the attacked batch.
    """
    with kept_modes(model):
        if mode == "eval":
            model.eval()
        with untracked(model):
            yield


@contextmanager
def reestimating(model: nn.Module) -> Iterator[None]:
    """Inside the block, passes in training mode average the statistics anew, every batch alike.

    Weights that were changed from outside leave running statistics that belong to other weights: forget them, pass
    ordinary images inside the block, and they fit again. Layers in evaluation mode keep theirs.
    """
    switched = _tracking(model)
    with kept(switched, "momentum"), torch.no_grad():
        for layer in switched:
            layer.reset_running_stats()
            layer.momentum = None  # the plain average of all batches
        yield


def _tracking(model: nn.Module) -> list[BatchNorm]:
    """Return the BatchNorm layers whose running statistics a pass changes."""
    return [layer for _, layer in batch_norms(model) if layer.training and layer.track_running_stats]


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor], *, moving: bool = False) -> int:
    """Estimate the running statistics of all BatchNorm layers from ``batches``, in place.

    A network whose weights were interpolated, averaged or moved by hand still carries the mean and variance of the
    weights it came from. One pass over clean images gives it its own: over batches i of n_i images,

        mean = sum_i n_i mean_i / sum_i n_i,    var = sum_i n_i var_i / sum_i n_i

    with the batch's mean and its variance as the layer itself computes them (divided by n - 1). This is the cumulative
    average of Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018, Section
    3.2.

    With ``moving`` every layer goes on with its own moving average over the batches instead, as in training. All other
    layers are in evaluation mode meanwhile (no dropout); modes and momenta are as before afterwards. Returns the number
    of images passed forward: none for a network without BatchNorm that keeps statistics.
    """
    layers = [layer for _, layer in batch_norms(model) if layer.track_running_stats and layer.running_mean is not None]
    if not layers:
        return 0
    seen = 0
    with kept_modes(model), kept(layers, "momentum"):
        model.eval()
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
    if not seen:
        raise InputError("statistics are estimated from images, got none. Give at least two.")
    return seen


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
    frozen = frozen_batch_norms(model)
    with kept(frozen, "training"), kept(frozen, "train"):
        for layer in frozen:
            layer.eval()
            layer.__dict__["train"] = lambda _mode=True, layer=layer: layer
        yield
