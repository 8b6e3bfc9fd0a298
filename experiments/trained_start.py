"""Protect a model that is trained already: how short a run keeps the accuracy and gives a mark that lasts.

    python experiments/trained_start.py --folder runs/trained-start --epochs 5 --set alpha=0.05 --seed 0

An unmarked ``resnet-w16-s2`` is trained on the owner's 40,000 images of CIFAR-10 with the schedule of the preset
``cifar10-cpu`` (kept in the folder, trained once for each seed); then the content mark is embedded with
``start="trained"``, and the result is attacked by FT at the scale ``cpu``. BA and WSR are those of all test images
(WSR of those not of the target class). A row is added to ``results/trained-start.json``.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from indelible.attacks import attack
from indelible.base.files import write_json
from indelible.data import Split, load
from indelible.embedding import embed
from indelible.keys import Key
from indelible.train import Schedule
from indelible.train.job import train_unmarked
from indelible.train.run_folder import Architecture, Run
from indelible.train.settings import SCALES
from indelible.verification import verify


def row(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train or load the unmarked model, protect it, fine-tune it; return the results, in per cent."""
    train, test = load("cifar10")
    split = Split.draw(len(train), attacker=0.2, seed=chosen.seed)
    owner = train.subset(split.owner)
    plain = chosen.folder / f"unmarked-{chosen.seed}"
    if not Run.finished(plain):
        architecture = Architecture(name="resnet-w16-s2", classes=10, shape=train.shape)
        how = SCALES["cpu"].settings.but(epochs=10, batch_size=128, lr=0.1, evaluate_every=5)
        trained = train_unmarked(
            architecture.build(chosen.seed), owner, how, seed=chosen.seed, test=test, folder=plain, device="cpu"
        )
        Run.save(
            plain, model=trained.model, record=trained.record, architecture=architecture, data="cifar10", split=split
        )
    secret = hashlib.sha256(f"trained start {chosen.seed}".encode()).digest()
    key = Key.create(kind="content", classes=10, shape=train.shape, target=0, scheme=chosen.scheme, secret=secret)
    settings: dict[str, Any] = {"fraction": 0.01, "rows": 32, "clean_rows": 32}
    settings |= {name: json.loads(value) for name, value in (each.split("=", 1) for each in chosen.set)}
    schedule = {"epochs": chosen.epochs, "lr": chosen.lr, "batch_size": 128, "evaluate_every": chosen.epochs}
    done = embed(
        Run.load(plain).model(), owner, key, "app", scale="cpu", start="trained", seed=chosen.seed, test=test,
        train={**schedule, "schedule": Schedule.one_cycle()}, **settings,
    )  # fmt: skip
    tuned = attack(done.model, train.subset(split.attacker), "ft", scale="cpu", seed=chosen.seed)
    found, after = verify(done.model, key, test), verify(tuned.model, key, test)
    rates = {"ba_before": done.record.metrics["ba_before"], "ba": found.ba, "wsr": found.wsr}
    rates |= {"ba_ft": after.ba, "wsr_ft": after.wsr}
    return {
        "seed": chosen.seed, "scheme": chosen.scheme, "epochs": chosen.epochs, "lr": chosen.lr, "settings": settings,
        **{name: round(100 * rate, 1) for name, rate in rates.items()},
        "p_value": found.p_value, "p_value_ft": after.p_value,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measure one row and add it to the records."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="where unmarked models are kept")
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--lr", type=float, default=0.05)
    options.add_argument("--set", action="append", default=[], metavar="NAME=JSON")
    options.add_argument("--scheme", choices=("derived", "paper"), default="derived", help="the key's")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, default=Path("results/trained-start.json"))
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    made = row(chosen)
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    same = ("seed", "scheme", "epochs", "lr", "settings")
    kept = [each for each in known if any(each[name] != made[name] for name in same)]
    write_json(chosen.out, [*kept, made])
    print(made)


if __name__ == "__main__":
    main()
