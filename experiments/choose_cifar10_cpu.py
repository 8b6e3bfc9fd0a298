"""One trial in the choice of the network and of alpha for the preset ``cifar10-cpu``: embed, fine-tune, look.

    python experiments/choose_cifar10_cpu.py app-a15 --model resnet-w16-s2 --method app --set alpha=0.15 --epochs 4

BA and WSR are those of 4,000 held-out images of the owner; test images are not touched, and no attack but FT is run. A
trial is added to ``results/cifar10-cpu-choice.json``.
"""

import argparse
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from indelible.attacks import FineTuning, attack
from indelible.base.files import write_json
from indelible.data import Split, load
from indelible.embedding import EMBEDDINGS, embed
from indelible.keys import Key
from indelible.models import build_model
from indelible.train import Schedule
from indelible.verification import verify

HELD_OUT = 4000


def trial(chosen: argparse.Namespace) -> dict[str, Any]:
    """Embed the content mark with the chosen settings, fine-tune, and return the results, in per cent."""
    train, _ = load("cifar10")
    split = Split.draw(len(train), seed=chosen.seed)
    held, owner = train.subset(split.owner[:HELD_OUT]), train.subset(split.owner[HELD_OUT:])
    secret = hashlib.sha256(b"tune").digest()
    key = Key.create(kind="content", classes=10, shape=train.shape, target=0, scheme="paper", secret=secret)
    model = build_model(chosen.model, classes=10, shape=train.shape, seed=chosen.seed)
    given = (each.split("=", 1) for each in chosen.set)
    settings = {"fraction": 0.01} | {name: json.loads(value) for name, value in given}
    schedule = {"epochs": chosen.epochs, "lr": chosen.lr, "batch_size": 128, "evaluate_every": chosen.epochs}
    method = EMBEDDINGS[chosen.method].build.for_key(key, "paper", **settings)
    done = embed(
        model, owner, key, method, scale="paper", train={**schedule, "schedule": Schedule.one_cycle()}, test=held,
        seed=chosen.seed,
    )  # fmt: skip
    tuned = attack(done.model, train.subset(split.attacker), FineTuning(epochs=15, every=4), seed=chosen.seed)
    verdict = verify(tuned.model, key, held)
    before = done.record.metrics
    figures = {"ba": before["ba"], "wsr": before["wsr"], "ba_ft": verdict.ba, "wsr_ft": verdict.wsr}
    return {
        "name": chosen.name, "network": chosen.model, "method": chosen.method, "settings": settings,
        "epochs": chosen.epochs, "lr": chosen.lr, "seed": chosen.seed,
        **{name: round(100 * value, 1) for name, value in figures.items()},
        "travelled": round(distance(done.model, tuned.model), 3),
    }  # fmt: skip


def distance(before: torch.nn.Module, after: torch.nn.Module) -> float:
    """Return how far the kernels and matrices moved, relative to their length."""
    moved, length = 0.0, 0.0
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        if old.ndim > 1:
            moved += float((new - old).detach().square().sum())
            length += float(old.detach().square().sum())
    return math.sqrt(moved / length)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one trial and add it to the records."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name")
    options.add_argument("--model", default="resnet-w16-s2")
    options.add_argument("--method", default="app")
    options.add_argument("--set", action="append", default=[], metavar="NAME=JSON")
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--lr", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, default=Path("results/cifar10-cpu-choice.json"))
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    found = trial(chosen)
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    write_json(chosen.out, [*(each for each in known if each["name"] != chosen.name), found])
    print(found)


if __name__ == "__main__":
    main()
