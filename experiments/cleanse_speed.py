"""Measure Neural Cleanse over all classes in one batched run against class by class: same steps, same process.

    python experiments/cleanse_speed.py --model resnet-w16-s2 --classes 10 --batch-size 16 --rounds 5

Three ways are timed in turn in every round, in seconds of processor time, so that other work on the machine does not
count; ratios are taken within the round:

- loop: one class after the other as it is commonly written, torch's Adam on a mask and a pattern, the model frozen;
- class by class: the package's own steps, one class in a pass;
- all at once: the package's own steps, as many classes in a pass as it takes by itself.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks.neural_cleanse import NeuralCleanse, PatchSearch
from indelible.base.progress import silenced
from indelible.data.images import ImageData
from indelible.models import build_model


def loop(model: nn.Module, data: ImageData, batch_size: int, cost: float = 1e-3) -> int:
    """Search one class after the other in one pass over the images each; return how many images were passed."""
    model = copy.deepcopy(model).requires_grad_(False).eval()
    images, passed = data.images.float() / 255, 0
    for label in range(len(data.classes)):
        raw_mask, raw_pattern = torch.randn(1, *data.shape[1:]), torch.randn(data.shape)
        adam = torch.optim.Adam([raw_mask.requires_grad_(), raw_pattern.requires_grad_()], lr=0.1, betas=(0.5, 0.9))
        for batch in images.split(batch_size):
            mask, pattern = raw_mask.tanh() / 2 + 0.5, raw_pattern.tanh() / 2 + 0.5
            wanted = torch.full((len(batch),), label)
            logits = model((1 - mask) * batch + mask * pattern)
            loss = F.cross_entropy(logits, wanted) + cost * mask.sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
            (logits.argmax(1) == wanted).sum().item()
            passed += len(batch)
    return passed


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print one line a round."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="resnet-w16-s2")
    options.add_argument("--classes", type=int, default=10)
    options.add_argument("--variant", default="original")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--images", type=int, default=512)
    options.add_argument("--rows", type=int)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (chosen.images, 3, 32, 32), generator=random, dtype=torch.uint8)
    labels = torch.arange(chosen.images) % chosen.classes
    data = ImageData(images, labels, tuple(map(str, range(chosen.classes))), "random")
    model = build_model(chosen.model, classes=chosen.classes, shape=data.shape, seed=0)

    def ours(rows: int | None) -> int:
        settings = NeuralCleanse(variant=chosen.variant, epochs=1, batch_size=chosen.batch_size, rows=rows)
        with silenced():
            return PatchSearch(settings, model, data, seed=0).run().images

    ways: dict[str, Callable[[], int]] = {
        "loop": lambda: loop(model, data, chosen.batch_size),
        "class by class": lambda: ours(1),
        "all at once": lambda: ours(chosen.rows),
    }
    ratios: dict[str, list[float]] = {name: [] for name in list(ways)[:2]}
    for turn in range(chosen.rounds + 1):
        seconds, passed = {}, {}
        for name, way in ways.items():
            began = time.process_time()
            passed[name] = way()
            seconds[name] = time.process_time() - began
        assert len(set(passed.values())) == 1  # noqa: S101 - the same work, or the ratio means nothing
        if turn:  # the first round warms up
            for name, found in ratios.items():
                found.append(seconds[name] / seconds["all at once"])
            print(f"round {turn}:", "  ".join(f"{name} {passed[name] / seconds[name]:5.0f} images/s" for name in ways))
    for name, found in ratios.items():
        print(f"all at once against {name}: {statistics.median(found):.2f}x ({min(found):.2f} - {max(found):.2f})")


if __name__ == "__main__":
    main()
