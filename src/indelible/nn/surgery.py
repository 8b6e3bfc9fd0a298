"""Surgery on any module: other forwards, modes or tensors for a while, and a copy that has learnt nothing.

Every change here is undone to the bit, also when an exception flies through; classes, parameters, buffers and
``state_dict`` keys stay as they are.

:func:`torch.func.functional_call` puts a tensor at every *name* of a parameter. A module that is registered twice has
two names for one place: torch swaps that place twice and then puts the substitute back, not the parameter. So
:func:`places` lists the places, each once, and torch is told to tie nothing. A parameter in two modules has a place in
each; a module under two names is one place.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


@contextmanager
def kept(modules: Iterable[nn.Module], name: str) -> Iterator[None]:
    """Inside the block, the attribute ``name`` of these modules may change; afterwards each is as it was.

    It is that of the instance: a method that was replaced there is the class's again.
    """
    before = [(module, {name: module.__dict__[name]} if name in module.__dict__ else {}) for module in modules]
    try:
        yield
    finally:
        for module, own in before:
            module.__dict__.pop(name, None)
            module.__dict__.update(own)


@contextmanager
def standing_in(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, the ``forward`` of each of these layers is another function."""
    with kept(forwards, "forward"):
        for layer, forward in forwards.items():
            layer.__dict__["forward"] = forward
        yield


def kept_modes(model: nn.Module) -> AbstractContextManager[None]:
    """Inside the block, layers may change between training and evaluation mode; afterwards each is as it was."""
    return kept(model.modules(), "training")


def places(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return every place that holds a parameter, by one name each; a tied parameter has several."""
    return {
        f"{prefix}.{name}" if prefix else name: weight
        for prefix, module in model.named_modules()  # each module once, however often it is registered
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
    }


def call_with(model: nn.Module, tensors: Mapping[str, Tensor], images: Tensor) -> Any:
    """Return ``model(images)`` with ``tensors`` in place of the parameters of these names; the model stays as it was.

    One name of each parameter is enough; its other places get the same tensor.
    """
    by_parameter = {id(model.get_parameter(name)): tensor for name, tensor in tensors.items()}
    swapped = {name: by_parameter[id(weight)] for name, weight in places(model).items() if id(weight) in by_parameter}
    return functional_call(model, swapped, (images,), tie_weights=False)


@torch.no_grad()
def fresh_copy(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of ``model`` with new weights; torch's generators are left as they were.

    Layers that know how (``reset_parameters``, as all of torch's) draw their weights and statistics anew. Parameters
    that no such layer owns (a class token, position embeddings, a scale) keep their values in a random order: what they
    had learnt is gone, their spread is not.
    """
    fresh = copy.deepcopy(model)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    fresh.to("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for layer in fresh.modules():
            renew = getattr(layer, "reset_parameters", None)
            if callable(renew):
                renew()
                continue
            for weight in layer.parameters(recurse=False):
                weight.copy_(weight.flatten()[torch.randperm(weight.numel())].view_as(weight))
    return fresh.to(device)
