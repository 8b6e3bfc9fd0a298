"""A quadratic Bezier curve through the weights of any module, without a twin of its network.

Paper: Garipov et al., "Loss Surfaces, Mode Connectivity, and Fast Ensembling of DNNs", NeurIPS 2018, Equation (3):

    phi(t) = (1 - t)^2 a + 2 t (1 - t) b + t^2 c,   0 <= t <= 1

a is ``curve.start`` and c is ``curve.end``, both fixed; b is ``curve.bend``, the one control point that is trained.

The network's own code runs on the interpolated weights (:func:`indelible.nn.surgery.call_with`), so any module will do,
also one that holds a layer in two places or ties parameters: what is shared stays one point of the curve. A curve has
no BatchNorm statistics of its own: those that training leaves in the bend belong to no single t. Whoever takes a point
off the curve estimates them again (:func:`indelible.nn.statistics.estimate_statistics`).
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.nn.surgery import call_with


def bezier_point(a: Tensor, b: Tensor, c: Tensor, t: float) -> Tensor:
    """Return the point ``t`` of the quadratic Bezier curve from ``a`` to ``c`` with the control point ``b``."""
    return (1.0 - t) ** 2 * a + 2.0 * t * (1.0 - t) * b + t**2 * c


class BezierCurve(nn.Module):
    """The curve between two sets of weights of one network, ``start`` and ``end``; at first the straight line.

    Only the parameters of ``bend`` are trainable, and of those only what was trainable in ``start``.
    """

    def __init__(self, start: nn.Module, end: nn.Module) -> None:
        super().__init__()
        shapes = [{name: weight.shape for name, weight in model.named_parameters()} for model in (start, end)]
        if shapes[0] != shapes[1]:
            raise InputError(
                "a curve joins two sets of weights of the same network, but the ends differ in names or shapes of "
                "their parameters. Fine-tune a copy of the start to get an end."
            )
        self.bend = copy.deepcopy(start)
        self.start, self.end = (copy.deepcopy(model).requires_grad_(False) for model in (start, end))
        with torch.no_grad():
            for name, weight in self.bend.named_parameters():
                weight.copy_((self.start.get_parameter(name) + self.end.get_parameter(name)) / 2)

    def point(self, t: float) -> dict[str, Tensor]:
        """Return the parameters at ``t`` by name; gradients flow to the bend."""
        return {
            name: bezier_point(self.start.get_parameter(name), weight, self.end.get_parameter(name), t)
            for name, weight in self.bend.named_parameters()
        }

    def forward(self, images: Tensor, t: float = 0.5) -> Any:
        """Return what the network at ``t`` answers to ``images``."""
        return call_with(self.bend, self.point(t), images)

    @torch.no_grad()
    def at(self, t: float) -> nn.Module:
        """Return an ordinary network with the weights at ``t``; its buffers are the start's."""
        if not 0.0 <= t <= 1.0:
            raise InputError(f"t must lie in [0, 1] for a point of the curve, got {t}.")
        model = copy.deepcopy(self.start)
        trainable = {name: weight.requires_grad for name, weight in self.bend.named_parameters()}
        points = self.point(t)
        for name, weight in model.named_parameters():
            weight.copy_(points[name]).requires_grad_(trainable[name])
        return model
