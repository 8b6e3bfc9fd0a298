"""NNL: neural network laundering. Recover the mark, reset what reacts to it, unlearn it.

Paper: Aiken et al., "Neural Network Laundering: Removing Black-Box Backdoor Watermarks from Deep Neural Networks",
Computers & Security 2021, Section 4; Neural Cleanse inside (see :mod:`indelible.attacks.neural_cleanse`); settings of
the ICCV 2023 paper, Appendix B.4.

1. Search a patch for every class; take that of the suspicious class with the smallest mask, failing that the smallest.
2. Put it on the attacker's images. A neuron *reacts* by the growth of its mean output, of a channel at the place where
   it grows most. Reset channels and neurons that react by more than ``conv_threshold`` or ``dense_threshold``, or that
   ``share`` of them which exceeds its threshold most - fewer than half of any layer, since gradients overflow behind a
   layer that is reset whole, and layers that share a weight as one.
3. Fine-tune on the clean images and, as many, the patched ones with their true labels.

All settings with their sources, both protocols and the slips that ``paper`` keeps: docs/attacks/nnl.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.neural_cleanse import NeuralCleanse, PatchSearch, Triggers, anomaly_indices, stamp, suspicious
from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import changed, measure
from indelible.data.augment import Normalization, normalise, to_float
from indelible.nn.outputs import logits_of
from indelible.train import Objective, Schedule, Step
from indelible.train.evaluate import evaluating

SHARES = tuple(step / 10 for step in range(11))
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
_BATCH = 250


@dataclass(frozen=True)
class Patch:
    """A recovered mark: mask (1 or C, H, W) and pattern in [0, 1]; ``added`` adds their product instead of blending."""

    mask: Tensor
    pattern: Tensor
    added: bool = False

    def on(self, images: Tensor) -> Tensor:
        """Return images (N, C, H, W) in [0, 1] with the patch, in [0, 1]."""
        mask, pattern = self.mask.to(images), self.pattern.to(images)
        return (images + mask * pattern).clamp(0, 1) if self.added else stamp(images, mask[None], pattern[None])

    def on_normalised(self, images: Tensor, by: Normalization | None) -> Tensor:
        """Return normalised images with the patch; added ones are not clipped."""
        mask, pattern = self.mask.to(images), self.pattern.to(images)
        if self.added:
            # The mean cancels out of a sum; only the deviation scales what is added.
            scale = by and (tuple(0.0 for _ in by[0]), by[1])
            return images + normalise((mask * pattern)[None], scale)
        return stamp(images, mask[None], normalise(pattern[None], by))


class Laundering(Objective):
    """Cross-entropy of clean images and of the same images with the patch, under their true labels."""

    def __init__(self, patch: Patch, normalize: Normalization | None) -> None:
        self.patch, self.normalize = patch, normalize

    def loss(self, step: Step) -> Tensor:
        """Return the mean over both halves."""
        images = torch.cat([step.images, self.patch.on_normalised(step.images, self.normalize)])
        if step.images.is_contiguous(memory_format=torch.channels_last):
            images = images.contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(logits_of(step.model(images)), step.labels.repeat(2))

    def passes(self, rows: int) -> int:
        """Each image goes twice."""
        return 2 * rows


@ATTACKS.register(
    name="nnl",
    title="Neural network laundering",
    paper="Aiken et al., Computers & Security 2021",
    summary="Recover the mark by Neural Cleanse, reset the neurons that react to it, and unlearn it.",
    cost="15 epochs of the attacker's images for each class to search, 30 to fine-tune",
)
@dataclass(frozen=True, kw_only=True)
class NeuralNetworkLaundering(RemovalAttack):
    """Recover, reset, unlearn; docs/attacks/nnl.md explains each setting."""

    # Small batches and short rounds: few passes, but enough of them for lambda to move.
    cpu_settings = {"cleanse_epochs": 1, "cleanse_batch": 16, "cleanse_round": 250, "epochs": 4, "milestone": 3}
    strengths = SHARES
    ranges = {"conv_threshold": "(0, inf)", "dense_threshold": "(0, inf)", "share": "[0, 1]"}

    cleanse_epochs: int | None = None
    cleanse_batch: int | None = None
    cleanse_round: int = 1000
    conv_threshold: float = 0.8
    dense_threshold: float = 0.2
    share: float | None = None
    ba_drop: float = 0.02
    epochs: int = 15
    lr: float = 0.02
    milestone: int = 10
    gamma: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    rows: int | None = None

    def passes(self, images: float, classes: int) -> float:
        return images * (self.search(classes).epochs * classes + 2 * self.epochs)

    def run(self, job: Removal) -> None:
        """Search, reset, fine-tune."""
        triggers = PatchSearch(
            self.search(len(job.data.classes)), job.model, job.data, seed=job.seed, normalize=job.normalize,
            folder=job.folder, device=job.place,
        ).run()  # fmt: skip
        job.count(triggers.images, seconds=triggers.earlier)
        patch = self._patch(job, triggers)
        self._reset(job, patch)
        job.train(
            self.training(
                batch_size=max(2, self.batch_size // 2), schedule=Schedule.milestones(self.milestone, gamma=self.gamma)
            ),
            phase="laundering", objective=Laundering(patch, job.normalize),
        )  # fmt: skip

    def search(self, classes: int) -> NeuralCleanse:
        """Return the search for patches that this protocol makes."""
        epochs = (5 if classes >= 100 else 15) if self.cleanse_epochs is None else self.cleanse_epochs
        if self.protocol == "paper":
            batch = self.cleanse_batch or 128
            return NeuralCleanse(variant="paper", epochs=epochs, cost=1e-4, batch_size=batch, rows=self.rows)
        batch = self.cleanse_batch or 32
        return NeuralCleanse(epochs=epochs, batch_size=batch, round_images=self.cleanse_round, rows=self.rows)

    def _patch(self, job: Removal, triggers: Triggers) -> Patch:
        paper = self.protocol == "paper"
        products = triggers.masks * triggers.patterns
        norms = products.flatten(1).norm(dim=1) if paper else triggers.norms()
        sizes = products.flatten(1).sum(1) if paper else norms
        flagged = suspicious(norms, lower=paper)
        candidates = flagged or list(range(len(norms)))
        label = min(candidates, key=lambda candidate: float(sizes[candidate]))
        job.note(
            suspicious=flagged, patched_class=label, mask_norms=[round(float(norm), 3) for norm in norms],
            anomaly_indices=[round(float(index), 3) for index in anomaly_indices(norms, lower=paper)],
            patch_success=float(triggers.success[label]),
        )  # fmt: skip
        return Patch(triggers.masks[label], triggers.patterns[label], added=paper)

    def _reset(self, job: Removal, patch: Patch) -> None:
        """Find what reacts, settle for a share of it, and reset that."""
        paper = self.protocol == "paper"
        excesses = self._excesses(job, patch)

        def change(model: nn.Module, share: float) -> None:
            for name, which in strongest(excesses, share).items():
                reset(layer_of(model, name), which, bias=not paper)

        chosen = measure(
            job, "share", SHARES, changed(job.model, change), judges=job.parts()[1], ba_drop=self.ba_drop,
            given=1.0 if self.share is None and paper else self.share, first_is_stolen=True,
        )  # fmt: skip
        counts = {"channels_reset": 0, "channels": 0, "neurons_reset": 0, "neurons": 0}
        spared = sum(int((excess > 1).sum() - resettable(excess).sum()) for excess in excesses.values())
        for name, which in strongest(excesses, chosen).items():
            what = "channels" if isinstance(job.model.get_submodule(name), CONVOLUTIONS) else "neurons"
            counts[f"{what}_reset"] += reset(layer_of(job.model, name), which, bias=not paper)
            counts[what] += len(which)
        job.note(share=chosen, spared=spared, **counts)

    def _excesses(self, job: Removal, patch: Patch) -> dict[str, Tensor]:
        """Return by layer, of those that are looked at, how each channel reacts, divided by its threshold."""
        found = reactions(job.model, _pairs(job, patch))
        job.count(2 * len(job.data))
        sizes = sorted({size for layer, _, size in found.values() if isinstance(layer, CONVOLUTIONS)})
        middle = sizes[1:-1] or sizes
        excesses = {}
        for name, (layer, growth, size) in found.items():
            convolution = isinstance(layer, CONVOLUTIONS)
            if self.protocol == "sound" or not convolution or size in middle:
                excesses[name] = growth / (self.conv_threshold if convolution else self.dense_threshold)
        return as_one(job.model, excesses)


def _pairs(job: Removal, patch: Patch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (clean, patched) batches; the other way round for the paper's protocol, whose sign is turned."""
    for images, _ in job.data.iterate(torch.arange(len(job.data)), _BATCH, job.place):
        clean = to_float(images)
        pair = normalise(clean, job.normalize), normalise(patch.on(clean), job.normalize)
        yield pair[::-1] if patch.added else pair


def reactions(
    model: nn.Module, pairs: Iterator[tuple[Tensor, Tensor]]
) -> dict[str, tuple[Layer, Tensor, tuple[int, ...]]]:
    """Return by name every convolution and dense layer that runs, how its channels react, and its output's size.

    ``pairs`` are batches (clean, patched) of the same images. A channel's reaction is the growth of its mean output
    under the patch, (C,), at the place where it grows most; the size is that beside batch and channels.
    """
    sums: dict[str, Any] = defaultdict(float)
    rows = 0
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, (*CONVOLUTIONS, nn.Linear))}
    sign = [1.0]

    def add(name: str, output: Tensor) -> None:
        sums[name] = sums[name] + sign[0] * (output.sum(0) if output.ndim > 1 else output)

    with ExitStack() as hooks, evaluating(model):
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(lambda _, __, output, name=name: add(name, output)))
        for clean, patched in pairs:
            rows += len(clean)
            for sign[0], images in ((-1.0, clean), (1.0, patched)):
                model(images)
    found = {}
    for name, total in sums.items():
        # Channels come first behind the batch in a convolution, last in a dense layer.
        channels = total if isinstance(layers[name], CONVOLUTIONS) else total.movedim(-1, 0)
        found[name] = (layers[name], channels.reshape(len(channels), -1).amax(1) / rows, tuple(channels.shape[1:]))
    return found


@torch.no_grad()
def reset(layer: Layer, which: Tensor, *, bias: bool = True) -> int:
    """Set the weights (and bias) of the output channels ``which`` (bool, (C,)) to zero; return how many."""
    layer.weight[which] = 0.0
    if bias and layer.bias is not None:
        layer.bias[which] = 0.0
    return int(which.sum())


def strongest(excesses: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return by layer which channels are reset: of all that may be, the share that exceeds its threshold most.

    ``excesses`` are the reactions of the channels (C,) divided by their threshold.
    """
    allowed = {name: resettable(excess) for name, excess in excesses.items()}
    values = torch.cat([excess[allowed[name]] for name, excess in excesses.items()]) if excesses else torch.empty(0)
    count = round(share * len(values))
    cut = float(values.sort(descending=True).values[count - 1]) if count else math.inf
    return {name: allowed[name] & (excess >= cut) for name, excess in excesses.items()}


def resettable(excess: Tensor) -> Tensor:
    """Return which channels of one layer may be reset, bool (C,): above their threshold, and fewer than half of all."""
    most = (len(excess) - 1) // 2
    allowed = torch.zeros_like(excess, dtype=torch.bool)
    allowed[excess.argsort(descending=True, stable=True)[:most]] = True
    return allowed & (excess > 1)


def as_one(model: nn.Module, excesses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``excesses`` where layers that share a weight have the strongest of their reactions, channel by channel.

    Otherwise each could lose one part of its channels, and both together all.
    """
    # A layer whose weight is computed from other parameters shares it with none.
    keys = {
        name: id(dict(model.get_submodule(name).named_parameters(recurse=False)).get("weight", name))
        for name in excesses
    }
    found: dict[int, Tensor] = {}
    for name, excess in excesses.items():
        found[keys[name]] = torch.maximum(found.get(keys[name], excess), excess)
    return {name: found[keys[name]] for name in excesses}


def layer_of(model: nn.Module, name: str) -> Layer:
    """Return the convolution or dense layer of this name."""
    layer = model.get_submodule(name)
    assert isinstance(layer, (*CONVOLUTIONS, nn.Linear))  # noqa: S101 - for the types: `reactions` looks at no other
    return layer
