"""Exponential weighting of a module's weights, as a parametrisation that can be put on and taken off.

Paper: Namba and Sakuma, "Robust Watermarking of Neural Network with Exponential Weighting", ASIACCS 2019:

    EW(theta_l, T)_i = theta_i * exp(T |theta_i|) / max_j exp(T |theta_j|)

The exponent is taken relative to the largest weight, which is the same number and cannot overflow. Gradients flow
through all of it, the maximum included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from indelible.base.errors import InputError
from indelible.nn.layers import perturbable_parameters


def exponential_weights(theta: Tensor, temperature: float) -> Tensor:
    """EW(theta, T): the largest weights stay, small ones shrink by up to ``exp(-T max|theta|)``."""
    size = theta.abs()
    return theta * torch.exp(temperature * (size - size.amax()))


class ExponentialWeighting(nn.Module):
    """The parametrisation: what ``module.weight`` gives is EW of the weight that is trained."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, theta: Tensor) -> Tensor:
        """Return EW(theta, T)."""
        return exponential_weights(theta, self.temperature)


def weighted_tensors(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return (module, attribute) of every weight that EW re-weights; a tied weight comes once for each of its places.

    They are the perturbable parameters (trainable, of no normalisation layer) with at least two axes: the kernels and
    matrices that the paper's "weight of a layer" means. Biases stay: one entry for a channel leaves nothing to lean on.
    """
    chosen = {id(weight) for weight in perturbable_parameters(model) if weight.ndim >= 2}
    places = []
    for prefix, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            if id(weight) not in chosen:
                continue
            where = f"{prefix}.{name}".lstrip(".")
            if isinstance(module, parametrize.ParametrizationList):
                raise InputError(f"{where!r} is parametrised already. Remove that first (remove_parametrizations).")
            if isinstance(module, nn.RNNBase):
                raise InputError(f"{where!r} belongs to a recurrent layer, whose weights cannot be parametrised.")
            places.append((module, name))
    if not places:
        raise InputError("the model has no trainable kernel or matrix to re-weight. Unfreeze some, or use 'vanilla'.")
    return places


@contextmanager
def weighting(
    model: nn.Module, temperature: float = 2.0, *, leave: Literal["plain", "folded"] = "plain"
) -> Iterator[None]:
    """Inside the block, ``model`` computes with EW(theta, T) and trains theta; afterwards it is an ordinary model.

    ``leave="plain"``: theta stays, the function changes (EW is switched off). ``"folded"``: EW(theta) stays, the
    function does not change. After an exception theta stays. Classes, parameters (the objects themselves) and
    ``state_dict`` keys are afterwards what they were before.
    """
    places = weighted_tensors(model)
    fixed = {id(getattr(module, name)): getattr(module, name) for module, name in places}
    switched: list[tuple[nn.Module, str, list[str]]] = []
    done = False
    try:
        for module, name in places:
            order = list(module._parameters)
            parametrize.register_parametrization(module, name, ExponentialWeighting(temperature))
            switched.append((module, name, order))
        yield
        done = True
    finally:
        for module, name, order in reversed(switched):
            parametrize.remove_parametrizations(module, name, leave_parametrized=False)
            # Taken off, a parameter is put back last: state_dict keeps its order only if we do.
            module._parameters.update({key: module._parameters.pop(key) for key in order})
        if done and leave == "folded":
            with torch.no_grad():
                for weight in fixed.values():
                    weight.copy_(exponential_weights(weight, temperature))
