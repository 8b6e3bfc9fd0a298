"""Protect a model that is trained already: what does the shortest run cost, and does its proof survive?

    python experiments/trained_start.py --folder runs/trained-start --seed 100

An unmarked ``resnet-w16-s2`` is trained on the owner's 40,000 images of CIFAR-10, by default for 30 epochs with the
schedule of the preset ``proof-cpu`` (kept in the folder, trained once for each seed). Then a codebook is embedded with
``start="trained"``, and the result goes through the paper's six attacks at the scale ``cpu``. Every stage has its
verdict. The price is counted in processor seconds and in rows passed through a network, as shares of the training that
is protected.

On seeds 0 to 9 settings are chosen: BA is that of the attacker's images, no test image is used. From seed 10 on BA is
that of the test images. A row for each stage is added to ``results/trained-start.json`` (half an hour on one core for a
seed with six attacks); stages that are in the file are not measured again.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from indelible.attacks import attack
from indelible.base.files import write_json
from indelible.data import Data, Split, load
from indelible.embedding import EMBEDDINGS, embed
from indelible.keys import Key
from indelible.train.job import train_unmarked
from indelible.train.run_folder import Architecture, Run
from indelible.train.settings import SCALES
from indelible.verification import verify

NETWORK, BATCH = "resnet-w16-s2", 128
ATTACKS = ("ft", "fp", "anp", "nad", "mcr", "nnl")
REPORTED_FROM = 10


def unmarked(folder: Path, seed: int, epochs: int, owner: Data, split: Split) -> Run:
    """Train the model that is to be protected, or load it."""
    if not Run.finished(folder):
        architecture = Architecture(name=NETWORK, classes=10, shape=owner.shape)
        how = SCALES["cpu"].settings.but(epochs=epochs, batch_size=BATCH, lr=0.1, evaluate_every=epochs)
        began = time.process_time()
        trained = train_unmarked(architecture.build(seed), owner, how, seed=seed, folder=folder, device="cpu")
        seconds = time.process_time() - began
        Run.save(
            folder, model=trained.model, record=trained.record, architecture=architecture, data="cifar10", split=split,
            history=trained.history,
        )  # fmt: skip
        write_json(folder / "processor-seconds.json", seconds)
    return Run.load(folder)


def rows(chosen: argparse.Namespace, done: set[str | None]) -> Iterator[dict[str, Any]]:
    """Protect and attack one model; yield a row for each stage that is not ``done``, as soon as it is measured."""
    train, test = load("cifar10")
    split = Split.draw(len(train), attacker=0.2, seed=chosen.seed)
    owner, thief = train.subset(split.owner), train.subset(split.attacker)
    judge = test if chosen.seed >= REPORTED_FROM else thief
    folder = chosen.folder / f"unmarked-{chosen.seed}-{chosen.epochs}"
    plain = unmarked(folder, chosen.seed, chosen.epochs, owner, split)
    used = owner if chosen.images is None else owner.subset(torch.arange(chosen.images))
    secret = hashlib.sha256(f"trained start {chosen.seed}".encode()).digest()
    key = Key.create(classes=10, shape=train.shape, secret=secret)
    given = {name: json.loads(value) for name, value in (each.split("=", 1) for each in chosen.set)}
    training = {name: json.loads(value) for name, value in (each.split("=", 1) for each in chosen.train)}

    def row(stage: str | None, model: nn.Module, **more: Any) -> dict[str, Any]:
        found = verify(model, key, judge)
        return {
            "trial": chosen.trial, "seed": chosen.seed, "original_epochs": chosen.epochs, "attack": stage,
            "method": chosen.method, "settings": given,
            "train": training, "images": len(used), **more,
            "ba": found.ba, "wsr": round(found.wsr, 4), "p_value": found.p_value, "owned": found.owned,
        }  # fmt: skip

    began = time.process_time()
    method = EMBEDDINGS[chosen.method].build.for_key(key, start="trained", **given)
    made = embed(
        plain.model(), used, key, method, start="trained", train=training, seed=chosen.seed, device="cpu"
    )  # fmt: skip
    seconds = time.process_time() - began
    if None not in done:
        before = verify(plain.model(), key, judge)
        yield row(
            None, made.model, ba_before=before.ba, p_value_before=before.p_value,
            share_of_rows=round(made.record.images / (chosen.epochs * len(owner)), 4),
            share_of_seconds=round(seconds / json.loads((folder / "processor-seconds.json").read_text()), 4),
        )  # fmt: skip
    for name in chosen.attacks:
        if name not in done:
            yield row(name, attack(made.model, thief, name, seed=chosen.seed).model)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the stages that are not in the file yet."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="where unmarked models are kept")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--epochs", type=int, default=30, help="epochs of the training that is protected")
    options.add_argument("--trial", default="default", help="a name for these settings")
    options.add_argument("--method", default="app")
    options.add_argument("--images", type=int, help="how many of the owner's 40,000 images are used; by default all")
    options.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of APP")
    options.add_argument("--train", action="append", default=[], metavar="NAME=JSON", help="a training setting")
    options.add_argument("--attacks", nargs="*", default=list(ATTACKS))
    options.add_argument("--out", type=Path, default=Path("results/trained-start.json"))
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    done = {row["attack"] for row in known if (row["trial"], row["seed"]) == (chosen.trial, chosen.seed)}
    for made in rows(chosen, done):
        known.append(made)
        write_json(chosen.out, known)
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
