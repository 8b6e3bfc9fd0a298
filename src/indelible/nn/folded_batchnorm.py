"""A frozen copy of a classifier whose BatchNorm is folded into the convolutions before it.

In evaluation mode BatchNorm is the affine map  s (z - mu) + beta  with  s = gamma / sqrt(var + eps), so that

    BN(W * x + b) = (s W) * x + (s (b - mu) + beta)

and a convolution followed by BatchNorm is one convolution. A search that passes many images through a model which does
not change saves a pass over every activation, forwards and backwards.
"""

import copy
from collections import Counter

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from indelible.nn.outputs import logits_of

_CLOSE = 1e-4  # of the logits' largest size; folding changes the order of float32 sums


def folded(model: nn.Module, probe: Tensor) -> nn.Module:
    """Return a frozen copy of ``model`` in evaluation mode, with BatchNorm folded away where that is safe.

    Safe is a convolution and a BatchNorm layer that are called once each, one right after the other, in a network that
    ``torch.fx`` can trace, and of no subclass. The logits of ``probe``, a few images (N, C, H, W) as the model sees
    them, are compared with the model's own; where they differ, and where tracing fails, the copy is the model as it is.
    It lies on the probe's device.
    """
    plain = copy.deepcopy(model).requires_grad_(False).eval().to(probe.device)
    with torch.no_grad():
        expected = logits_of(plain(probe))
        try:
            traced = fx.symbolic_trace(plain)  # shares its layers; folding replaces them and changes none
            _fold(traced)
            found = logits_of(traced(probe))
        except Exception:  # noqa: BLE001 - tracing runs the model's own code, which may raise anything
            return plain
    close = float((expected - found).abs().max()) <= _CLOSE * float(expected.abs().max())
    return traced.requires_grad_(False) if close else plain


def _fold(traced: fx.GraphModule) -> None:
    calls = [node for node in traced.graph.nodes if node.op == "call_module"]
    times = Counter(id(traced.get_submodule(str(node.target))) for node in calls)
    for node in calls:
        before = node.args[0] if node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        convolution, norm = (traced.get_submodule(str(part.target)) for part in (before, node))
        if type(convolution) is not nn.Conv2d or type(norm) is not nn.BatchNorm2d:
            continue  # a subclass may do anything
        if times[id(convolution)] == times[id(norm)] == 1 and norm.running_mean is not None:
            path, _, name = str(before.target).rpartition(".")
            setattr(traced.get_submodule(path), name, fuse_conv_bn_eval(convolution, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.recompile()
