"""APP's memory: one copy of the perturbed weights, and the activations of the watermark batch."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.mixing import MarkedBatches
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import WatermarkSamples
from indelible.nn.layers import perturbable_parameters
from step_memory import MEBI, measure


def wide() -> nn.Module:
    """Eight matrices of equal size, far larger than the activations of a few rows."""
    torch.manual_seed(0)
    layers = [nn.Linear(192, 192), *[nn.Linear(192, 192) for _ in range(6)]]
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), *layers, nn.Linear(192, 4))


def deep() -> nn.Module:
    """Small kernels, far smaller than the activations of a few rows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(),
        nn.Linear(8 * 32 * 32, 4),
    )  # fmt: skip


@pytest.mark.parametrize("make", [wide, deep])
@pytest.mark.parametrize("norm", ["tensor", "global"])
def test_one_copy_of_the_weights_beyond_the_watermark_batch(make: Callable[[], nn.Module], norm: str) -> None:
    model = make()
    weights = perturbable_parameters(model)
    sizes = [weight.numel() * weight.element_size() / MEBI for weight in weights]
    peaks = measure(model, rows=8, norm=norm)
    # Beyond the same passes without a perturbation: one copy, and one tensor of it where no activations are held.
    assert peaks["APP"] - peaks["eps 0"] <= 1.02 * (sum(sizes) + max(sizes))
    assert peaks["APP"] > peaks["eps 0"] + 0.5 * sum(sizes), "the measurement sees the copy"
    # Beyond plain training: that, and the activations of the watermark batch, which has the size of the ordinary one.
    # Its images count among these: four watermark rows, and the joined batch of eight that both passes read.
    activations = peaks["activations"] + (4 + 8) * 3 * 32 * 32 * 4 / MEBI
    assert peaks["APP"] - peaks["plain"] <= 1.02 * (sum(sizes) + max(sizes) + activations) + 0.01


def test_nothing_stays_behind() -> None:
    model = wide()
    samples = WatermarkSamples(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.zeros(4).long(), torch.arange(4))
    passes = WatermarkPasses(model, AdversarialPerturbation(rows=4, clean_rows=4), MarkedBatches(samples, 4))
    before = [weight.data_ptr() for weight in model.parameters()]
    passes.backward(torch.rand(8, 3, 32, 32), 0)
    assert [weight.data_ptr() for weight in model.parameters()] == before
