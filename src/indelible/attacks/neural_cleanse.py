"""Neural Cleanse: find, for every class, the smallest patch that sends any image there. A mark shows as a small one.

Paper: Wang et al., "Neural Cleanse: Identifying and Mitigating Backdoor Attacks in Neural Networks", IEEE S&P 2019,
Section IV; details from the authors' published code (``original``) and from that of the ICCV 2023 paper (``paper``).

    A(x, m, p) = (1 - m) x + m p,     min over m, p of  mean CE(f(A(x, m, p)), y) + lambda |m|_1     for each class y

| symbol | name | original | paper |
|---|---|---|---|
| m | mask | one channel, (1 + tanh) / 2, random start | one for each channel, sigmoid of U(0, 1) |
| p | pattern | (1 + tanh) / 2, random start | sigmoid of U(0, 1) |
| images | - | all | all but those of class y |
| lambda | ``cost`` | 0, then 1e-3, then dynamic | 1e-4, fixed |
| success wanted | ``success`` | 0.99 | - |
| lambda moves after | ``patience`` | 5 rounds | - |
| by the factor | ``factor`` | 2 up, 2^1.5 down | - |
| stop after | ``stop_patience`` | 25 rounds without a smaller mask, once lambda went both ways | - |
| images per round | ``round_images`` | 1000 | - |
| rate of Adam(0.5, 0.9) | ``lr`` | 0.1 | 0.1 |
| batch | ``batch_size`` | 32 | 128 |
| images in one pass | ``rows`` | 256 on a CPU, 4096 elsewhere | the same; memory against speed |
| result | - | the smallest mask that succeeded | the last one |
| passes over the images | ``epochs`` | 1000 rounds at most | 15; 5 with 100 classes |

The anomaly index is |n - median n| / (1.4826 median |n - median n|) over the classes' norms n; classes below the median
with an index above 2 are suspicious.

How it differs: all classes are searched at once. Their patches are folded into the batch, K x B images in one pass, as
many classes as ``rows`` allows; a loop over 100 classes is what made the paper cut its epochs. The images of a step are
the same for all classes, losses add up and Adam works on each number by itself, so every class gets what it would get
alone. A class that stops leaves the batch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError, UnknownNameError
from indelible.data.augment import Normalization
from indelible.data.images import Data

_CONSISTENCY = 1.4826  # makes the median absolute deviation of a normal distribution its standard deviation
State = dict[str, Tensor]


def stamp(images: Tensor, masks: Tensor, patterns: Tensor) -> Tensor:
    """Put each of K patches on each of N images: (K * N, C, H, W), all images with the first patch first."""
    return torch.lerp(images[None], patterns[:, None], masks[:, None].expand_as(patterns[:, None])).flatten(0, 1)


def stamp_gradients(gradient: Tensor, images: Tensor, masks: Tensor, patterns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of masks and patterns, given that of the stamped images (K * N, C, H, W).

    With g the gradient of A = (1 - m) x + m p, dp = m sum g and dm = p sum g - sum g x, sums over the N images: two
    reductions, where differentiating through :func:`stamp` would write several tensors of K N images.
    """
    each = gradient.unflatten(0, (len(masks), len(images)))
    total = each.sum(1)
    of_masks = patterns * total - (each * images).sum(1)
    return of_masks.sum(1, keepdim=True) if masks.shape[1] == 1 else of_masks, masks * total


def anomaly_indices(norms: Tensor, *, lower: bool = False) -> Tensor:
    """Return how far each norm (K,) lies from the median, in (consistent) median absolute deviations.

    With ``lower``, the median of an even number is the lower of the two middle values, not their mean.
    """

    def median(values: Tensor) -> Tensor:
        return values.median() if lower else values.quantile(0.5)

    distances = (norms - median(norms)).abs()
    # All norms equal: no class stands out.
    return distances / (_CONSISTENCY * median(distances)).clamp_min(torch.finfo(norms.dtype).tiny)


def suspicious(norms: Tensor, *, lower: bool = False, above: float = 2.0) -> list[int]:
    """Return the classes whose norm is an outlier below the median, the smallest first."""
    indices = anomaly_indices(norms, lower=lower)
    middle = norms.median() if lower else norms.quantile(0.5)
    found = ((indices > above) & (norms <= middle)).nonzero().flatten()
    return [int(label) for label in found[norms[found].argsort()]]


def next_costs(
    state: State, reached: Tensor, *, cost: float, patience: int, factor: float, stop_patience: int
) -> State:
    """Return the state after a round: lambda, its counters and who stops; all of shape (K,).

    ``reached`` says whose success was high enough in this round; the settings are those of :class:`NeuralCleanse`.
    """
    new = dict(state)
    found = new["best"].isfinite()
    new["stale"] = torch.where(found & (new["best"] >= new["stop_best"]), new["stale"] + 1, new["stale"] * ~found)
    new["stop_best"] = torch.minimum(new["best"], new["stop_best"])
    done = new["went_up"].bool() & new["went_down"].bool() & (new["stale"] >= stop_patience)
    new["stopped"] = new["stopped"] | done
    new["set"] = (new["set"] + 1) * ((new["cost"] == 0) & reached)
    begins = new["set"] >= patience
    new["cost"] = torch.where(begins, cost, new["cost"])
    for name in ("up", "down", "went_up", "went_down"):
        new[name] = new[name] * ~begins
    new["up"], new["down"] = (new["up"] + 1) * reached, (new["down"] + 1) * ~reached
    rises, falls = new["up"] >= patience, new["down"] >= patience
    new["cost"] = torch.where(rises, new["cost"] * factor, torch.where(falls, new["cost"] / factor**1.5, new["cost"]))
    new["went_up"], new["went_down"] = new["went_up"] | rises, new["went_down"] | falls
    new["up"], new["down"] = new["up"] * ~rises, new["down"] * ~falls
    return new


@dataclass(frozen=True)
class Triggers:
    """One recovered patch for each class, how often it succeeded in its round, and what the search cost."""

    masks: Tensor
    patterns: Tensor
    success: Tensor
    images: int
    earlier: float  # seconds of the sessions before this one

    def norms(self) -> Tensor:
        """Return the L1 norm of each mask (of its mean over channels), (K,)."""
        return self.masks.mean(1).flatten(1).sum(1)


@dataclass(frozen=True, kw_only=True)
class NeuralCleanse:
    """The search as a value; docs/attacks/neural-cleanse.md explains each setting."""

    variant: Literal["original", "paper"] = "original"
    epochs: int = 15
    batch_size: int = 32
    round_images: int = 1000
    lr: float = 0.1
    cost: float = 1e-3
    success: float = 0.99
    patience: int = 5
    factor: float = 2.0
    stop_patience: int = 25
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.variant not in {"original", "paper"}:
            raise UnknownNameError("variant of Neural Cleanse", self.variant, ("original", "paper"))
        if min(self.epochs, self.batch_size, self.round_images, self.rows or 1, self.patience) < 1:
            raise InputError("epochs, batch_size, round_images, rows and patience must be at least 1.")

    def search(
        self, model: nn.Module, data: Data, *, seed: int, normalize: Normalization | None = None,
        folder: Path | None = None, device: torch.device | str = "cpu", dear: Tensor | None = None,
        name: str = "neural-cleanse",
    ) -> Triggers:  # fmt: skip
        """Search a patch for every class of ``data``; a search found in ``folder`` under ``name`` is continued.

        With ``dear``, (K, 1, H, W), a pixel of a mask costs so many times lambda: a way to keep off some places.
        """
        from indelible.attacks.patch_search import PatchSearch

        return PatchSearch(self, model, data, seed, normalize, folder, torch.device(device), dear, name).run()
