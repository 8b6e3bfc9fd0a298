"""Peak memory of a training step by method, counted by torch's own allocator: `python experiments/step_memory.py`.

Every allocation and release of the CPU allocator in one step is summed up; what was there before the step (weights,
momentum, data) is not counted. Gradients are, as they are after ``zero_grad``.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.mixing import MarkedBatches
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import WatermarkSamples
from indelible.models import build_model
from indelible.nn.layers import perturbable_parameters
from speed_suite.clock import peak_bytes

MEBI = 2**20


def peak(model: nn.Module, step: Callable[[], object]) -> float:
    """Return the highest sum of allocations in ``step()``, in MiB."""
    model.zero_grad()
    return peak_bytes(step, torch.device("cpu")) / MEBI


def measure(model: nn.Module, rows: int, **settings: Any) -> dict[str, float]:
    """Return the peak, in MiB, of a plain step, of its forward pass alone, and of APP with and without a perturbation.

    Args:
        model: A classifier of images (3, 32, 32), in training mode.
        rows: Ordinary rows; half as many watermark rows, and half as many clean ones.
        settings: Of APP.
    """
    half, classes = rows // 2, len(model(torch.rand(2, 3, 32, 32))[0])
    images, labels = torch.rand(rows, 3, 32, 32), torch.arange(rows) % classes
    marked = torch.randint(0, 256, (half, 3, 32, 32), dtype=torch.uint8)
    samples = WatermarkSamples(marked, torch.zeros(half, dtype=torch.int64), torch.arange(half))

    def forward() -> object:
        return model(images)

    def ordinary() -> None:
        F.cross_entropy(model(images), labels).backward()

    def app(eps: float) -> None:
        ordinary()
        method = AdversarialPerturbation(eps=eps, rows=half, clean_rows=half, **settings)
        WatermarkPasses(model, method, MarkedBatches(samples, method.rows)).backward(images, 0)

    app(0.02)  # whatever is allocated once and kept
    return {
        "activations": peak(model, forward),
        "plain": peak(model, ordinary),
        "eps 0": peak(model, lambda: app(0.0)),
        "APP": peak(model, lambda: app(0.02)),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet-18")
    parser.add_argument("--rows", type=int, default=8, help="ordinary rows; half as many watermark and clean rows")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    model = build_model(arguments.model, classes=10, shape=(3, 32, 32), seed=0).train()
    weights = sum(weight.numel() * weight.element_size() for weight in perturbable_parameters(model)) / MEBI
    half = arguments.rows // 2
    print(f"{arguments.model}, {arguments.rows} ordinary rows, {half} watermark and {half} clean rows")
    print(f"one copy of the perturbed weights: {weights:.1f} MiB")
    peaks = measure(model, arguments.rows)
    print(f"activations of a forward pass: {peaks.pop('activations'):.1f} MiB")
    print("| step | peak (MiB) | beyond plain (MiB) |\n|---|---|---|")
    for title, found in peaks.items():
        print(f"| {title} | {found:.1f} | {found - peaks['plain']:+.1f} |")


if __name__ == "__main__":
    main()
