"""A stranger's tasks with nothing but defaults: does the watermark prove ownership, before and after fine-tuning?

Tasks made of the embedded images, a convolutional network of some 40,000 weights that the package does not know, three
ways to protect it. No setting of the watermark is given anywhere.

| task | images | classes |
|---|---|---|
| colour | RGB 48 x 48 | 7, the largest four times the smallest |
| gray | gray 28 x 28 | 10 |
| pair | gray 28 x 28 | 2 |
| hundred | RGB 28 x 28 | 100: ten garments in ten tints |
| large | RGB 224 x 224 | 10; half of the images; a first layer of 7 x 7 with stride 4 |

| way | what |
|---|---|
| scratch | ``embed(model, data, key, scale="cpu")`` |
| trained | an unmarked model, then ``embed(..., start="trained")`` |
| loop | a training loop in plain PyTorch with ``indelible.APP(model, key)`` |

BA is measured on all 10,000 test images of Fashion-MNIST (``indelible data fetch fashion-mnist``): the embedded set has
so few that chance alone moves BA by a point. Marks are asked on the embedded test images.

Run it: python experiments/strangers_tasks.py --seeds 100 101

Half an hour on one core for a seed; what is in the file is not measured again.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import indelible
from indelible.data.convert import fit_shape
from indelible.data.images import Data, ImageData
from indelible.embedding import Vanilla
from indelible.train.evaluate import accuracy

TASKS = ("colour", "gray", "pair", "hundred", "large")
WAYS = ("scratch", "trained", "loop")


def task(name: str, data: ImageData) -> ImageData:
    """Make a task of Fashion-MNIST images."""
    if name == "gray":
        return data
    if name == "pair":
        upper = torch.isin(data.labels, torch.tensor([0, 2, 4, 6]))  # T-shirt, pullover, coat, shirt
        return ImageData(data.images, upper.long(), ("other", "upper body"), name)
    if name == "hundred":
        tint = torch.arange(len(data.labels)) % 10
        colours = 0.35 + 0.65 * torch.rand(10, 3, generator=torch.Generator().manual_seed(10))
        images = (data.images.expand(-1, 3, -1, -1).float() * colours[tint][:, :, None, None] + 40).clamp(0, 255)
        names = tuple(f"{garment} {number}" for garment in data.classes for number in range(10))
        return ImageData(images.to(torch.uint8), data.labels * 10 + tint, names, name)
    if name == "large":
        rows = torch.arange(0, len(data.labels), 2)
        return ImageData(fit_shape(data.images[rows], (3, 224, 224)), data.labels[rows], data.classes, name)
    # Seven of ten classes, ever fewer images of each, brought to 48 x 48 and tinted by a fixed matrix.
    shares = torch.linspace(1.0, 0.25, 7)
    rows = torch.cat([
        (data.labels == label).nonzero().flatten()[: int(share * int((data.labels == label).sum()))]
        for label, share in enumerate(shares.tolist())
    ])  # fmt: skip
    grown = fit_shape(data.images[rows], (3, 48, 48)).float()
    tint = torch.tensor([1.0, 0.8, 0.6])[:, None, None]
    images = (255 - (255 - grown) * tint).clamp(0, 255).to(torch.uint8)
    return ImageData(images, data.labels[rows], data.classes[:7], name)


def network(channels: int, classes: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    """Return a small network with BatchNorm: 39,000 to 48,000 weights."""
    return nn.Sequential(
        nn.Conv2d(channels, 24, kernel, stride, padding=kernel // 2), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 40, 3, padding=1), nn.BatchNorm2d(40), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(40, 80, 3, padding=1), nn.BatchNorm2d(80), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, classes),
    )  # fmt: skip


def own_loop(model: nn.Module, data: ImageData, key: indelible.Key | None, seed: int) -> None:
    """Train as somebody else would: SGD, one cycle, crops by hand left out."""
    random = torch.Generator().manual_seed(seed)
    images, labels = data.images.float() / 255, data.labels
    epochs, size = 12, 64
    steps = epochs * -(-len(images) // size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    mark = None if key is None else indelible.APP(model, key, seed=seed)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=random).split(size):
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            if mark is not None:
                mark.backward(images[rows])
            optimizer.step()
            schedule.step()


def _gathered(data: Data) -> ImageData:
    return data.gather(torch.arange(len(data)))


def measure(name: str, way: str, seed: int) -> dict[str, Any]:
    """Protect one network one way, fine-tune it as a thief would, ask for the key before and after."""
    whole, test = (task(name, _gathered(part)) for part in indelible.load("fashion-mini"))
    judged = test if name == "large" else task(name, _gathered(indelible.load("fashion-mnist")[1]))
    split = indelible.Split.draw(len(whole), seed=seed)
    owner, thief = whole.subset(split.owner), whole.subset(split.attacker)
    classes = len(whole.classes)
    secret = hashlib.sha256(f"stranger, seed {seed}".encode()).digest()
    key = indelible.Key.create(classes=classes, shape=whole.shape, secret=secret)

    def fresh() -> nn.Module:
        torch.manual_seed(seed)
        stem = {"kernel": 7, "stride": 4} if name == "large" else {}
        return network(whole.shape[0], classes, **stem)

    plain = fresh()
    if way == "loop":
        own_loop(plain, owner, None, seed)
        marked = fresh()
        own_loop(marked, owner, key, seed)
    else:
        nothing = indelible.embed(plain, owner, key, Vanilla.for_key(key, fraction=0.0), seed=seed)
        plain = nothing.model
        start: dict[str, Any] = {"start": "trained"} if way == "trained" else {}
        marked = indelible.embed(plain if start else fresh(), owner, key, seed=seed, **start).model
    stolen = indelible.attack(marked, thief, "ft", seed=seed).model
    before, after = (indelible.verify(model, key, test, accuracy=False) for model in (marked, stolen))
    return {
        "task": name, "way": way, "seed": seed, "classes": classes, "marks": key.marks,
        "ba_unmarked": accuracy(plain, judged), "ba": accuracy(marked, judged), "ba_after": accuracy(stolen, judged),
        "wsr": before.wsr, "p_value": before.p_value, "owned": before.owned,
        "wsr_after": after.wsr, "p_value_after": after.p_value, "owned_after": after.owned,
        "p_value_unmarked": indelible.verify(plain, key, test, accuracy=False).p_value,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not in the file yet; a broken run goes on when it is called again."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, nargs="+", default=[100])
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options.add_argument("--out", type=Path, default=Path("results/strangers-tasks.json"))
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out.exists() else []
    done = {(row["task"], row["way"], row["seed"]) for row in rows}
    for seed in given.seeds:
        for name in given.tasks:
            for way in given.ways:
                if (name, way, seed) in done or (name in {"hundred", "large"} and way != "scratch"):
                    continue
                row = measure(name, way, seed)
                rows.append(row)
                given.out.write_text(json.dumps(rows, indent=1) + "\n")
                words = [("OWNED" if row[which] else "NOT SHOWN") for which in ("owned", "owned_after")]
                print(
                    f"{name} {way} {seed}: BA {100 * row['ba']:.1f} % (unmarked {100 * row['ba_unmarked']:.1f} %), "
                    f"{words[0]} p = {row['p_value']:.1g}, after FT {words[1]} p = {row['p_value_after']:.1g}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
