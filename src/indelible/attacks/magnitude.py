"""Magnitude pruning: set the smallest weights of the whole network to zero.

Paper: Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NeurIPS 2015; as an attack on
watermarks: Uchida et al., ICMR 2017.

    w_i = 0 for the floor(share * n) of all n weights with the smallest |w_i|

| symbol | name | default | source |
|---|---|---|---|
| share | ``share`` | by budget | ours: the largest that costs no more than ``ba_drop`` |
| - | ``ba_drop`` | 0.02 | ours: points of accuracy that pruning may cost |

The ranking is global: one order for all layers. Weights are parameters of two or more axes outside normalisation
layers; biases stay. Shares: 0 to 0.95 in steps of 0.05, then 0.97, 0.98, 0.99. Nothing is fitted to the attacker's
images, so all may judge. Nothing is trained afterwards: that is FP's part.

There is one recipe, ``sound``: the ICCV 2023 paper has no such attack. Preset ``cpu`` is the same as ``full``.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from indelible.attacks.base import ATTACKS, Recipe, Removal, RemovalAttack
from indelible.attacks.strength import change_at_budget, weight_matrices
from indelible.base.errors import InputError
from indelible.base.registry import MethodInfo

__all__ = ["MagnitudePruning", "prune_smallest", "smallest_first"]

SHARES = (*(step / 20 for step in range(20)), 0.97, 0.98, 0.99)


def smallest_first(model: nn.Module) -> Tensor:
    """Return the places of all weights, laid end to end, from the smallest size to the largest: int64 (n,)."""
    sizes = torch.cat([weight.detach().abs().flatten().cpu() for weight, _ in weight_matrices(model)])
    return sizes.argsort(stable=True)


@torch.no_grad()
def prune_smallest(model: nn.Module, order: Tensor, share: float) -> None:
    """Set the first ``share`` of ``order`` to zero, in place.

    Args:
        model: The network that ``order`` was made for, or a copy of it.
        order: As :func:`smallest_first` returns it.
        share: In [0, 1).
    """
    keep = torch.ones(len(order), dtype=torch.bool)
    keep[order[: int(len(order) * share + 1e-9)]] = False  # 0.7 * 10 is 7, whatever the floating-point product says
    weights = [weight for weight, _ in weight_matrices(model)]
    for weight, kept in zip(weights, keep.split([weight.numel() for weight in weights]), strict=True):
        weight.mul_(kept.view(weight.shape).to(weight))


@dataclass(frozen=True, kw_only=True)
class MagnitudePruning(RemovalAttack):
    """Set the smallest weights to zero; the table in the module's header explains each setting."""

    recipes: ClassVar[tuple[Recipe, ...]] = ("sound",)
    strengths: ClassVar[tuple[float, ...]] = SHARES

    share: float | None = None
    ba_drop: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share is not None and not 0.0 <= self.share < 1.0:
            raise InputError(f"share is the part of the weights to prune, in [0, 1), got {self.share}. Try 0.5.")

    def run(self, job: Removal) -> None:
        """Rank once, choose the share, prune."""
        order = smallest_first(job.model)
        chosen = change_at_budget(
            job, lambda model, share: prune_smallest(model, order, share), name="share", values=SHARES,
            given=self.share, ba_drop=self.ba_drop,
        )  # fmt: skip
        job.note(share=chosen, pruned=int(len(order) * chosen + 1e-9), weights=len(order))


ATTACKS.add(
    MethodInfo(
        name="magnitude",
        title="Magnitude pruning",
        paper="Han et al., NeurIPS 2015; Uchida et al., ICMR 2017",
        summary="Set the smallest weights of the whole network to zero.",
        cost="24 passes over the attacker's images to choose, none backward",
        build=MagnitudePruning,
    )
)
