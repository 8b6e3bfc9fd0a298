"""Magnitude pruning: set the smallest weights of the whole network to zero.

Paper: Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NeurIPS 2015; as an attack on
watermarks: Uchida et al., ICMR 2017.

    w_i = 0 for the floor(share * n) of all n weights with the smallest |w_i|

| symbol | name | default | source |
|---|---|---|---|
| share | ``share`` | by budget | ours: the largest that costs no more than ``ba_drop`` |

The order is global, and nothing is trained afterwards; see docs/attacks/magnitude.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import change_at_budget
from indelible.base.errors import InputError
from indelible.nn.layers import normalisation_parameters

SHARES = (*(step / 20 for step in range(20)), 0.97, 0.98, 0.99)


def weight_matrices(model: nn.Module) -> list[tuple[Tensor, int]]:
    """Return every weight of two or more axes outside normalisation layers, with the axis of its outputs.

    That axis is the first, but for transposed convolutions, which have it second. Biases and the affine parameters of
    normalisation layers are few and are left alone, as is usual in pruning and in quantisation.
    """
    spared = {id(weight) for weight in normalisation_parameters(model)}
    turned = {id(layer.weight) for layer in model.modules() if isinstance(layer, _ConvTransposeNd)}
    found: list[tuple[Tensor, int]] = [
        (weight, 1 if id(weight) in turned else 0)
        for weight in model.parameters()
        if weight.ndim >= 2 and weight.is_floating_point() and id(weight) not in spared
    ]
    if not found:
        raise InputError(
            f"{type(model).__name__} has no weight of two or more axes outside normalisation layers. Choose an attack "
            "that needs none, such as ft."
        )
    return found


def smallest_first(model: nn.Module) -> Tensor:
    """Return the places of all weights, laid end to end, from the smallest size to the largest: int64 (n,)."""
    sizes = torch.cat([weight.detach().abs().flatten().cpu() for weight, _ in weight_matrices(model)])
    return sizes.argsort(stable=True)


@torch.no_grad()
def prune_smallest(model: nn.Module, order: Tensor, share: float) -> None:
    """Set the first ``share``, in [0, 1), of ``order`` (see :func:`smallest_first`) to zero, in place."""
    keep = torch.ones(len(order), dtype=torch.bool)
    keep[order[: int(len(order) * share + 1e-9)]] = False  # 0.7 * 10 is 7, whatever the floating-point product says
    weights = [weight for weight, _ in weight_matrices(model)]
    for weight, kept in zip(weights, keep.split([weight.numel() for weight in weights]), strict=True):
        weight.mul_(kept.view(weight.shape).to(weight))


@ATTACKS.register(
    name="magnitude",
    title="Magnitude pruning",
    paper="Han et al., NeurIPS 2015; Uchida et al., ICMR 2017",
    summary="Set the smallest weights of the whole network to zero.",
    cost="24 passes over the attacker's images to choose, none backward",
)
@dataclass(frozen=True, kw_only=True)
class MagnitudePruning(RemovalAttack):
    """Set the smallest weights to zero; docs/attacks/magnitude.md explains each setting."""

    protocols = ("sound",)
    strengths = SHARES
    ranges = {"share": "[0, 1)"}

    share: float | None = None
    ba_drop: float = 0.02

    def run(self, job: Removal) -> None:
        """Rank once, choose the share, prune."""
        order = smallest_first(job.model)
        chosen = change_at_budget(
            job, lambda model, share: prune_smallest(model, order, share), name="share", values=SHARES,
            given=self.share, ba_drop=self.ba_drop,
        )  # fmt: skip
        job.note(share=chosen, pruned=int(len(order) * chosen + 1e-9), weights=len(order))
