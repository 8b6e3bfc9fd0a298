"""A network with the structure of another and nothing that it has learnt."""

import copy

import torch
from torch import nn

__all__ = ["fresh_copy"]


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
