"""Measure Neural Cleanse over all classes in one batched run against class by class: same steps, same process.

    python tools/measure_cleanse.py --model resnet-mini --classes 10 --rounds 5

Each round times both ways in turn, in seconds of processor time, so that other work on the machine does not count; the
ratio is taken within the round.
"""

import argparse
import statistics
import time

import torch

from indelible.attacks.neural_cleanse import NeuralCleanse
from indelible.base.progress import silenced
from indelible.data.images import ImageData
from indelible.models import build_model


def main() -> None:
    """Measure and print one line a round."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="resnet-mini")
    options.add_argument("--classes", type=int, default=10)
    options.add_argument("--variant", default="original")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--images", type=int, default=128)
    options.add_argument("--rows", type=int)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (chosen.images, 3, 32, 32), generator=random, dtype=torch.uint8)
    labels = torch.arange(chosen.images) % chosen.classes
    data = ImageData(images, labels, tuple(map(str, range(chosen.classes))), "random")
    model = build_model(chosen.model, classes=chosen.classes, shape=data.shape, seed=0)
    ratios = []
    for turn in range(chosen.rounds + 1):
        seconds, passed = {}, {}
        for name, rows in (("class by class", 1), ("all at once", chosen.rows)):
            search = NeuralCleanse(variant=chosen.variant, epochs=1, batch_size=chosen.batch_size, rows=rows)
            began = time.process_time()
            with silenced():
                passed[name] = search.search(model, data, seed=0).images
            seconds[name] = time.process_time() - began
        assert len(set(passed.values())) == 1  # noqa: S101 - the same work, or the ratio means nothing
        if turn:  # the first round warms up
            ratios.append(seconds["class by class"] / seconds["all at once"])
            speeds = "  ".join(f"{name} {passed[name] / spent:6.0f} images/s" for name, spent in seconds.items())
            print(f"round {turn}: {speeds}  {ratios[-1]:.2f}x")
    print(f"median {statistics.median(ratios):.2f}x ({min(ratios):.2f} - {max(ratios):.2f})")


if __name__ == "__main__":
    main()
