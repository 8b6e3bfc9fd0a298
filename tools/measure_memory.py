"""Peak memory of a training step by method, counted by torch's own allocator: `python tools/measure_memory.py`.

Every allocation and release of the CPU allocator in one step is summed up; what was there before the step (weights,
momentum, data) is not counted. Gradients are, as they are after ``zero_grad``.
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from indelible.embed.app import AdversarialPerturbation, WatermarkPasses
from indelible.keys.key import WatermarkSamples
from indelible.models import build_model
from indelible.nn.layers import perturbable_parameters

MEBI = 2**20


def peak(model: nn.Module, step: Callable[[], object]) -> float:
    """Return the highest sum of allocations in ``step()``, in MiB."""
    model.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    total = highest = 0
    for event in events:
        total += event.nbytes()
        highest = max(highest, total)
    return highest / MEBI


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet-18")
    parser.add_argument("--rows", type=int, default=8, help="ordinary rows; half as many watermark and clean rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, half = arguments.rows, arguments.rows // 2
    model = build_model(arguments.model, classes=10, shape=(3, 32, 32), seed=0).train()
    images, labels = torch.rand(rows, 3, 32, 32), torch.arange(rows) % 10
    marked = torch.randint(0, 256, (half, 3, 32, 32), dtype=torch.uint8)
    samples = WatermarkSamples(marked, torch.zeros(half, dtype=torch.int64), torch.arange(half))
    weights = sum(weight.numel() * weight.element_size() for weight in perturbable_parameters(model)) / MEBI
    print(f"{arguments.model}, {rows} ordinary rows, {half} watermark and {half} clean rows")
    print(f"one copy of the perturbed weights: {weights:.1f} MiB")
    print("| step | peak (MiB) | beyond plain (MiB) | in copies of the weights |\n|---|---|---|---|")

    def ordinary() -> None:
        F.cross_entropy(model(images), labels).backward()

    def app(eps: float) -> None:
        ordinary()
        method = AdversarialPerturbation(eps=eps, rows=half, clean_rows=half)
        WatermarkPasses(model, method, samples).backward(images, 0)

    ordinary()  # whatever is allocated once and kept
    plain = peak(model, ordinary)
    for title, step in (("plain", ordinary), ("eps 0", lambda: app(0.0)), ("APP", lambda: app(0.02))):
        found = peak(model, step)
        print(f"| {title} | {found:.1f} | {found - plain:+.1f} | {(found - plain) / weights:+.2f} |")


if __name__ == "__main__":
    main()
