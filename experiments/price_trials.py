"""Choose the defaults of APP for a codebook: one trial at a time on CIFAR-10, on seeds 0 to 9 and without test images.

A trial trains ``resnet-w16-s2`` for 10 epochs on the owner's images less 4,000 held-out ones, asks for the key on
these, and attacks the model. BA is measured on the held-out images and on the attacker's 10,000 images.

Run it: python experiments/price_trials.py C --seed 0 --set eps=0.01 --set head_start=0 --attacks ft nnl
        python experiments/price_trials.py "no mark" --seed 0 --unmarked

Rows are added to results/price-trials.json (15 minutes on one core for a trial with two attacks).
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import indelible
from indelible.embedding import EMBEDDINGS
from indelible.train.evaluate import accuracy

HELD_OUT, EPOCHS, NETWORK = 4000, 10, "resnet-w16-s2"


def trial(
    name: str, seed: int, settings: dict[str, Any], attacks: list[str], *, unmarked: bool
) -> list[dict[str, Any]]:
    """Train and attack one model; return a row for each stage."""
    train, _ = indelible.load("cifar10")
    split = indelible.Split.draw(len(train), seed=seed)
    held, owner = train.subset(split.owner[:HELD_OUT]), train.subset(split.owner[HELD_OUT:])
    thief = train.subset(split.attacker)
    secret = hashlib.sha256(f"price, seed {seed}".encode()).digest()
    key = indelible.Key.create(classes=10, shape=train.shape, secret=secret)
    model = indelible.build_model(NETWORK, classes=10, shape=train.shape, seed=seed)
    how = {"epochs": EPOCHS, "batch_size": 128, "lr": 0.1, "evaluate_every": EPOCHS}
    method, given = ("vanilla", {"fraction": 0.0}) if unmarked else ("app", settings)

    def row(stage: str | None, found: torch.nn.Module, began: float) -> dict[str, Any]:
        verdict = indelible.verify(found, key, carriers=held)
        return {
            "trial": name, "seed": seed, "attack": stage, "settings": {"method": method, **given},
            "ba_held_out": verdict.ba, "ba_attacker_images": accuracy(found, thief) if stage is None else None,
            "wsr": round(verdict.wsr, 4), "p_value": verdict.p_value, "marks_held": verdict.counts["held"],
            "processor_seconds": round(time.process_time() - began, 1),
        }  # fmt: skip

    began = time.process_time()
    value = EMBEDDINGS[method].build.for_key(key, **given)
    marked = indelible.embed(model, owner, key, value, train=how, test=held, seed=seed).model
    rows = [row(None, marked, began)]
    for attack in attacks:
        began = time.process_time()
        stolen = indelible.attack(marked, thief, attack, scale="cpu", seed=seed).model
        rows.append(row(attack, stolen, began))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run one trial and add its rows to the records."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name")
    options.add_argument("--seed", type=int, default=0, choices=range(10), help="0 to 9: later seeds are for reports")
    options.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of APP")
    options.add_argument("--attacks", nargs="*", default=[], help="removal attacks on the trained model")
    options.add_argument("--unmarked", action="store_true", help="the same training without a mark")
    options.add_argument("--out", type=Path, default=Path("results/price-trials.json"))
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    settings = {name: json.loads(value) for name, value in (each.split("=", 1) for each in given.set)}
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    for row in trial(given.name, given.seed, settings, given.attacks, unmarked=given.unmarked):
        rows.append(row)
        print(json.dumps(row), flush=True)
    given.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
