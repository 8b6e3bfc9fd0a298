"""BNP: BatchNorm-statistics pruning - drop the channels whose running statistics do not fit clean images.

Paper: Zheng, Tang, Li, Liu, "Pre-activation Distributions Expose Backdoor Neurons", NeurIPS 2022, and its authors'
code.

    d_k = KL( N(m_k, v_k) || N(mu_k, s_k) ) = ln sqrt(s_k / v_k) + (v_k + (m_k - mu_k)^2) / (2 s_k) - 1/2
    prune channel k of a layer if d_k > mean(d) + u * std(d): gamma_k = 0

| symbol | name | ``sound`` | ``paper`` | source |
|---|---|---|---|---|
| m, v | mean and variance of BatchNorm's input | over clean images | the same | the paper |
| mu, s | running mean and variance | as stolen | the same | the paper |
| u | ``u`` | by budget | 3 | the authors' code |

Both protocols and how it differs: docs/attacks/bnp.md.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from indelible.attacks.clp import ChannelLipschitzness
from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.nn.layers import BatchNorm, batch_norms


def gaussian_kl(mean: Tensor, variance: Tensor, other_mean: Tensor, other_variance: Tensor) -> Tensor:
    """Return KL(N(mean, variance) || N(other_mean, other_variance)), element by element, in nats."""
    spread = (variance + (mean - other_mean).square()) / (2.0 * other_variance)
    return 0.5 * (other_variance / variance).log() + spread - 0.5


def clean_moments(job: Removal, layers: dict[str, BatchNorm], data: Data) -> dict[str, tuple[Tensor, Tensor]]:
    """Return mean and variance (C,) of what arrives at each BatchNorm over ``data``, in evaluation mode."""
    # Sums in float64, shifted by the running mean: the difference of two large sums would lose the variance.
    sums = {name: torch.zeros(3, layer.num_features, dtype=torch.float64) for name, layer in layers.items()}

    def add(name: str, layer: BatchNorm, args: tuple[Any, ...]) -> None:
        rows = args[0].movedim(1, 0).flatten(1).cpu().double()
        assert layer.running_mean is not None  # noqa: S101 - for the type checker: only such layers are given
        apart = rows - layer.running_mean.cpu().double()[:, None]
        ones = torch.full((len(apart),), apart.shape[1], dtype=torch.float64)
        sums[name] += torch.stack([ones, apart.sum(1), apart.square().sum(1)])

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_pre_hook(lambda layer, args, name=name: add(name, layer, args)))
        job.show(data)
    moments = {}
    for name, (count, first, second) in sums.items():
        shift, running = first / count, layers[name].running_mean
        assert running is not None  # noqa: S101 - as above
        if bool((count > 0).all()):  # a layer that no image reached says nothing
            moments[name] = (running.cpu().double() + shift, (second / count - shift.square()).clamp_min(0.0))
    return moments


@ATTACKS.register(
    name="bnp",
    title="BatchNorm-statistics pruning",
    paper="Zheng et al., NeurIPS 2022",
    summary="Prune the channels whose running statistics lie far from those of clean images.",
    cost="3.1 passes over the attacker's images, none backward",
)
@dataclass(frozen=True, kw_only=True)
class BatchNormPruning(ChannelLipschitzness):
    """Prune channels whose statistics clean images do not explain; docs/attacks/bnp.md explains each setting."""

    def passes(self, images: float, classes: int) -> float:
        return images * (0.9 + 0.1 * (len(self.strengths) + 1))  # statistics of nine tenths; the rest judges

    def run(self, job: Removal) -> None:
        """Measure clean statistics, compare, choose u, prune."""
        layers = {
            name: layer for name, layer in batch_norms(job.model) if layer.affine and layer.running_mean is not None
        }
        if not layers:
            raise InputError(
                f"BNP compares running statistics of BatchNorm layers, and {type(job.model).__name__} has none. "
                "Choose an attack that needs none, such as magnitude or ft."
            )
        fitting, held = job.parts()
        distances = {}
        for name, (mean, variance) in clean_moments(job, layers, fitting).items():
            layer = layers[name]
            assert layer.running_mean is not None and layer.running_var is not None  # noqa: S101, PT018 - for mypy
            running = (layer.running_mean.cpu().double(), layer.running_var.cpu().double() + layer.eps)
            distances[name] = gaussian_kl(mean, variance + layer.eps, *running)
        self.prune(job, distances, bias=False, judges=held)
