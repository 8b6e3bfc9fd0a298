"""CLP: channel-Lipschitzness pruning - drop the channels that can amplify an input far more than their neighbours.

Paper: Zheng, Tang, Li, Liu, "Data-free Backdoor Removal based on Channel Lipschitzness", ECCV 2022, and its authors'
code. No image is needed to rank channels; the attacker's images only choose u.

    s_k = |gamma_k / sigma_k| * ||W_k||_2        W_k: filter k as a matrix (inputs, height * width)
    prune channel k of a layer if s_k > mean(s) + u * std(s): gamma_k = beta_k = 0

| symbol | name | ``sound`` | ``paper`` | source |
|---|---|---|---|---|
| u | ``u`` | by budget | 3 | the authors' code |

||.||_2 is the largest singular value, sigma is sqrt(variance + eps). Both protocols and how it differs:
docs/attacks/clp.md.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import change_at_budget
from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.nn.layers import BatchNorm, batch_norms
from indelible.train.evaluate import evaluating

US = tuple(step / 4 for step in range(21))
PAPER_U = 3.0


def channel_bounds(weight: Tensor, gamma: Tensor, sigma: Tensor) -> Tensor:
    """Return the bound (C,) on the Lipschitz constant of each channel of a layer (C, inputs, ...) and its BatchNorm."""
    filters = weight.flatten(2) if weight.ndim > 2 else weight[:, :, None]
    # On the CPU in float64: few numbers, and not every device has either the precision or the decomposition.
    largest: Tensor = torch.linalg.matrix_norm(filters.cpu().double(), 2)
    return largest * (gamma / sigma).abs().cpu().double()


def outliers(scores: Tensor, u: float) -> Tensor:
    """Return which of ``scores`` (C,) lie more than ``u`` standard deviations (n - 1) above their mean: bool (C,)."""
    if len(scores) < 2:  # one channel has no deviation
        return torch.zeros_like(scores, dtype=torch.bool)
    return scores > scores.mean() + u * scores.std()


def normalised_layers(model: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Return (layer, BatchNorm) by name where BatchNorm reads the very output of a convolution or linear layer."""
    given: list[tuple[str, Tensor]] = []  # the tensors are held, so that no two of them can have the same identity
    found: dict[str, str] = {}

    def gave(name: str, output: Any) -> None:
        if isinstance(output, Tensor):
            given.append((name, output))

    def reads(name: str, args: Sequence[Any]) -> None:
        source = next((layer for layer, output in reversed(given) if args and output is args[0]), None)
        if source is not None:
            found.setdefault(name, source)

    with ExitStack() as hooks, evaluating(model):
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear | _ConvNd) and not isinstance(layer, _ConvTransposeNd):
                hooks.enter_context(layer.register_forward_hook(lambda _, __, output, name=name: gave(name, output)))
            elif isinstance(layer, BatchNorm) and layer.affine and layer.running_var is not None:
                hooks.enter_context(layer.register_forward_pre_hook(lambda _, args, name=name: reads(name, args)))
        model(images)
    return [(source, name) for name, source in found.items()]


@ATTACKS.register(
    name="clp",
    title="Channel-Lipschitzness pruning",
    paper="Zheng et al., ECCV 2022",
    summary="Prune the channels whose convolution and BatchNorm together can amplify an input the most.",
    cost="22 passes over the attacker's images to choose, none backward",
)
@dataclass(frozen=True, kw_only=True)
class ChannelLipschitzness(RemovalAttack):
    """Prune channels with an outlying Lipschitz bound; docs/attacks/clp.md explains each setting."""

    strengths = US

    u: float | None = None
    ba_drop: float = 0.02

    def run(self, job: Removal) -> None:
        """Bound every channel, choose u, prune."""
        norms = dict(batch_norms(job.model))
        bounds: dict[str, Tensor] = {}
        for source, name in normalised_layers(job.model, job.sample()):
            weight, norm = job.model.get_submodule(source).weight, norms[name]
            assert isinstance(weight, Tensor) and norm.running_var is not None  # noqa: S101, PT018 - for mypy
            bounds[name] = channel_bounds(weight.detach(), norm.weight.detach(), (norm.running_var + norm.eps).sqrt())
        if not bounds:
            raise InputError(
                f"CLP prunes BatchNorm channels directly behind a convolution or linear layer, and "
                f"{type(job.model).__name__} has none. Choose an attack that needs none, such as magnitude or ft."
            )
        self.prune(job, bounds, bias=True)

    def prune(self, job: Removal, scores: Mapping[str, Tensor], *, bias: bool, judges: Data | None = None) -> None:
        """Choose u, and set the outlying channels of every BatchNorm with ``scores`` (C,) to zero."""

        @torch.no_grad()
        def change(model: nn.Module, u: float) -> None:
            for name, norm in batch_norms(model):
                if name in scores:
                    pruned = outliers(scores[name], u).to(norm.weight.device)
                    norm.weight[pruned] = 0.0
                    if bias:
                        norm.bias[pruned] = 0.0

        fixed = PAPER_U if self.u is None and self.protocol == "paper" else self.u
        chosen = change_at_budget(
            job, change, name="u", values=US, given=fixed, ba_drop=self.ba_drop, strongest="low", judges=judges
        )
        pruned = sum(int(outliers(each, chosen).sum()) for each in scores.values())
        job.note(u=chosen, pruned=pruned, channels=sum(map(len, scores.values())))
