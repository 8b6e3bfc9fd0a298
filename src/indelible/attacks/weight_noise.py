"""Weight noise: shake all parameters by Gaussian noise in proportion to their size.

Paper: none fixes its size. Bansal et al., "Certified Neural Network Watermarks with Randomized Smoothing", ICML 2022
(CW), promise that a mark survives any change of the weights within a radius; noise is the plainest such change.

    w = w + sigma * ||w|| / sqrt(n) * z,   z ~ N(0, I)        w: one tensor of n numbers

| symbol | name | default | source |
|---|---|---|---|
| sigma | ``sigma`` | by budget | ours: the largest that costs no more than ``ba_drop`` |

One draw z serves all sigmas. What is shaken, and which sigmas are tried: docs/attacks/weight-noise.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import change_at_budget
from indelible.base.seeding import generator
from indelible.nn.noisy_gradient import gaussian

SIGMAS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


@torch.no_grad()
def shake(model: nn.Module, draw: Sequence[Tensor], sigma: float) -> None:
    """Add to every parameter, in place, its standard normal ``draw`` times ``sigma`` times its root mean square."""
    for weight, z in zip(_parameters(model), draw, strict=True):
        weight.add_(z.to(weight), alpha=sigma * float(weight.square().mean().sqrt()))


def _parameters(model: nn.Module) -> list[Tensor]:
    return [weight for weight in model.parameters() if weight.is_floating_point() and weight.numel()]


@ATTACKS.register(
    name="weight-noise",
    title="Weight noise",
    paper="none; a change of the kind that Bansal et al., ICML 2022, certify against",
    summary="Add Gaussian noise to all parameters, in proportion to the size of each tensor.",
    cost="12 passes over the attacker's images to choose, none backward",
)
@dataclass(frozen=True, kw_only=True)
class WeightNoise(RemovalAttack):
    """Shake all parameters; docs/attacks/weight-noise.md explains each setting."""

    protocols = ("sound",)
    strengths = SIGMAS
    ranges = {"sigma": "[0, inf)"}

    sigma: float | None = None
    ba_drop: float = 0.02

    def run(self, job: Removal) -> None:
        """Draw once, choose sigma, shake."""
        draw = gaussian(_parameters(job.model), 1.0, generator(job.seed, "weight-noise"))
        chosen = change_at_budget(
            job, lambda model, sigma: shake(model, draw, sigma), name="sigma", values=SIGMAS, given=self.sigma,
            ba_drop=self.ba_drop,
        )  # fmt: skip
        job.note(sigma=chosen)
