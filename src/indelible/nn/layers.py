"""Finding layers and parameters by type, never by name."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from indelible.base.errors import InputError

BatchNorm = _BatchNorm
"""BatchNorm1d, 2d, 3d, SyncBatchNorm and their lazy and user-made subclasses."""

_NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def batch_norms(model: nn.Module) -> list[tuple[str, BatchNorm]]:
    """Return every BatchNorm layer of ``model`` with its name, in the order of definition."""
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)]


def normalisation_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the affine parameters of all normalisation layers (batch, instance, layer, group, RMS)."""
    for layer in model.modules():
        if isinstance(layer, _NORMALISATIONS):
            yield from layer.parameters(recurse=False)


def perturbable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters that APP perturbs: all but those of normalisation layers, each once."""
    spared = {id(parameter) for parameter in normalisation_parameters(model)}
    return [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in spared]


def check_finite(model: nn.Module, what: str = "the model") -> None:
    """Refuse a model with NaN or infinity in its weights or buffers, naming the first such tensor."""
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(
                f"{what} has NaN or infinite values in {name!r}. Load a whole checkpoint, or train it again."
            )
