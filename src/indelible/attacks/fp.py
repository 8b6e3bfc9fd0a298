"""FP: fine-pruning - prune the channels that clean images leave quiet, then fine-tune.

Paper: Liu, Dolan-Gavitt, Garg, "Fine-Pruning: Defending Against Backdooring Attacks on Deep Neural Networks", RAID
2018, Section 4; settings of the ICCV 2023 paper, Section 4.1, and its authors' code.

    a_c = sum over images and pixels of |F_c|,   F: the last feature map, C channels
    prune the floor(rate * C) channels with the smallest a_c; fine-tune with these channels kept at zero

| symbol | name | ``sound`` | ``paper`` | source |
|---|---|---|---|---|
| rate | ``rate`` | by budget | 0.9 | ICCV 2023, Section 4.1 |

The last feature map, all settings and the slips that ``paper`` keeps: docs/attacks/fp.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from indelible.attacks.ft import FineTuning
from indelible.attacks.removal_attack import ATTACKS, Removal
from indelible.attacks.strengths import changed, measure
from indelible.data.images import Data
from indelible.nn.channel_masks import fold_inputs, masked_inputs
from indelible.nn.taps import FeatureReader, feature_reader

RATES = tuple(step / 20 for step in range(20))
PAPER_RATE = 0.9


@ATTACKS.register(
    name="fp",
    title="Fine-pruning",
    paper="Liu et al., RAID 2018",
    summary="Prune the channels of the last stage that clean images leave quiet, then fine-tune.",
    cost="30 epochs of the attacker's images, and 3 more to rank and choose",
)
@dataclass(frozen=True, kw_only=True)
class FinePruning(FineTuning):
    """Prune quiet channels, then fine-tune; docs/attacks/fp.md explains each setting."""

    only_trains = False  # unlike plain fine-tuning, it chooses a rate
    strengths = RATES
    ranges = {"rate": "[0, 1)"}

    rate: float | None = None
    ba_drop: float = 0.02

    def run(self, job: Removal) -> None:
        """Rank, choose the rate, fine-tune under the mask, fold."""
        fitting, held = job.parts()
        reader = feature_reader(job.model, job.sample())
        sizes = activation(job, reader, job.data if self.protocol == "paper" else fitting)
        build = changed(job.model, lambda model, rate: fold_inputs(model, reader, quietest(sizes, rate)))
        fixed = PAPER_RATE if self.rate is None and self.protocol == "paper" else self.rate
        chosen = measure(
            job, "rate", RATES, build, judges=held, ba_drop=self.ba_drop, given=fixed, first_is_stolen=True
        )
        keep = quietest(sizes, chosen)
        job.note(rate=chosen, pruned=int((keep == 0).sum()), channels=reader.channels, layer=reader.name)
        with masked_inputs(job.model, reader, keep):
            super().run(job)
        fold_inputs(job.model, reader, keep)


def activation(job: Removal, reader: FeatureReader, data: Data) -> Tensor:
    """Return the sum of the absolute values of each channel (C,) of what ``reader`` reads, a mean over ``data``."""
    layer = job.model.get_submodule(reader.name)
    total = torch.zeros(reader.inputs, dtype=torch.float64)

    def add(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        # Conv inputs are (N, C, ...), inputs of a linear layer (..., features).
        axis = 1 if hasattr(layer, "in_channels") else -1
        total.add_(args[0].abs().movedim(axis, 0).flatten(1).sum(1).cpu().double())

    with layer.register_forward_pre_hook(add):
        job.show(data)
    return reader.gather(total / len(data)).float()


def quietest(sizes: Tensor, rate: float) -> Tensor:
    """Return a mask (C,) that is 0 for the share ``rate`` of channels with the smallest ``sizes`` and 1 elsewhere."""
    keep = torch.ones_like(sizes)
    # A small allowance: 0.7 * 10 is 7 channels, whatever the floating-point product says.
    keep[sizes.argsort(stable=True)[: int(len(sizes) * rate + 1e-9)]] = 0.0
    return keep
