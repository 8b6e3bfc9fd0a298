"""Call a module with other tensors in place of some of its parameters, whatever shares them.

:func:`torch.func.functional_call` puts a tensor at every *name* of a parameter. A module that is registered twice has
two names for one place: torch swaps that place twice and then puts the substitute back, not the parameter. So the
places are listed here, each once, and torch is told to tie nothing:

| shared | places of the parameter |
|---|---|
| one parameter in two modules | one in each module |
| one module under two names | one: the module is the same |
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

__all__ = ["call_with", "places"]


def places(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return every place that holds a parameter, by one name each; a tied parameter has several."""
    return {
        f"{prefix}.{name}" if prefix else name: weight
        for prefix, module in model.named_modules()  # each module once, however often it is registered
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
    }


def call_with(model: nn.Module, tensors: Mapping[str, Tensor], images: Tensor) -> Any:
    """Return ``model(images)`` with ``tensors`` in place of the parameters of these names; the model stays as it was.

    Args:
        model: Any module.
        tensors: By one name of each parameter; its other places get the same tensor.
        images: (N, C, H, W).
    """
    by_parameter = {id(model.get_parameter(name)): tensor for name, tensor in tensors.items()}
    swapped = {name: by_parameter[id(weight)] for name, weight in places(model).items() if id(weight) in by_parameter}
    return functional_call(model, swapped, (images,), tie_weights=False)
