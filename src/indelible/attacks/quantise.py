"""Quantisation: round every weight to a few bits, as a thief does who deploys on small devices.

Papers: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018; symmetric weights, one scale for each output channel: Krishnamoorthi, "Quantizing Deep Convolutional Networks
for Efficient Inference", 2018.

    q = 2^(bits - 1) - 1,   d_k = max |W_k| / q,   W_k = d_k * round(W_k / d_k)       k: an output channel

| symbol | name | default | source |
|---|---|---|---|
| bits | ``bits`` | by budget | ours: the fewest of 8, 6, 5, 4, 3 that cost no more than ``ba_drop`` |

The quantisation is simulated: weights are stored back as floats. See docs/attacks/quantise.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from indelible.attacks.magnitude import weight_matrices
from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import change_at_budget

BITS = (3.0, 4.0, 5.0, 6.0, 8.0)


def quantised(weight: Tensor, bits: int, axis: int = 0) -> Tensor:
    """Return ``weight`` rounded to levels -q .. q, one scale for each output channel, which ``axis`` holds."""
    levels = 2 ** (bits - 1) - 1
    others = [place for place in range(weight.ndim) if place != axis]
    scale = weight.abs().amax(others, keepdim=True) / levels
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a channel of zeros stays one
    return (weight / scale).round().clamp(-levels, levels) * scale


@torch.no_grad()
def quantise(model: nn.Module, bits: float) -> None:
    """Round the weights of ``model`` to ``bits`` bits, in place."""
    for weight, axis in weight_matrices(model):
        weight.copy_(quantised(weight, int(bits), axis))


@ATTACKS.register(
    name="quantise",
    title="Weight quantisation",
    paper="Jacob et al., CVPR 2018; Krishnamoorthi, 2018",
    summary="Round the weights of every output channel to 8, 6, 5, 4 or 3 bits.",
    cost="6 passes over the attacker's images to choose, none backward",
)
@dataclass(frozen=True, kw_only=True)
class Quantisation(RemovalAttack):
    """Round all weights to a few bits; docs/attacks/quantise.md explains each setting."""

    protocols = ("sound",)
    strengths = BITS
    ranges = {"bits": "[2, 16]"}

    bits: int | None = None
    ba_drop: float = 0.02

    def run(self, job: Removal) -> None:
        """Choose the bits and round."""
        chosen = change_at_budget(
            job, quantise, name="weight_bits", values=BITS, given=None if self.bits is None else float(self.bits),
            ba_drop=self.ba_drop, strongest="low",
        )  # fmt: skip
        job.note(bits=int(chosen), weights=sum(weight.numel() for weight, _ in weight_matrices(job.model)))
