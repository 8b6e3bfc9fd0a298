"""Measure what keyed labels cost, and how long they last beside a fixed target class.

Vanilla and APP embed a content mark with a fixed target and with keyed labels, on images of fashion-mini. Each of the
four models is fine-tuned on other images at four learning rates; the key is asked before and after.

    python experiments/keyed_labels.py --out results/keyed-labels.json

A finished model is kept in --folder and not measured again.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from command import Finding, command, guarded, program
from indelible.attacks import FineTuning, attack
from indelible.base.files import read_json, write_json
from indelible.base.progress import Progress, silenced
from indelible.base.records import plain
from indelible.data import load
from indelible.embedding import EMBEDDINGS, embed
from indelible.keys.derive import expand
from indelible.keys.key import Key, Labels
from indelible.models import build_model
from indelible.verification.verdict import verify

__all__ = ["KeyedLabelSettings", "main", "measure_keyed_labels"]

_MASTER = bytes(range(3, 35))
_LABELS: tuple[Labels, ...] = ("fixed", "keyed")
_METHODS: Mapping[str, Mapping[str, Any]] = {"vanilla": {}, "app": {"alpha": 0.1}}
_FT_RATE = 0.05  # FT's own


@dataclass(frozen=True, kw_only=True)
class KeyedLabelSettings:
    """Who has what; the tests do less.

    Attributes:
        owner_images: Training images of the owner.
        thief_images: Of the thief; none is the owner's.
        test_images: Images that BA, and WSR of a fixed target, are measured on.
        count: Samples of a key with keyed labels; a fixed target marks 2 % of the owner's images.
        epochs: Of the embedding, and of every fine-tuning.
        rates: Gentle learning rates of FT, beside its own of 0.05.
        seed: Of everything.
    """

    owner_images: int = 3000
    thief_images: int = 1000
    test_images: int = 500
    count: int = 60
    epochs: int = 10
    rates: tuple[float, ...] = (0.001, 0.005, 0.01)
    seed: int = 0


def measure_keyed_labels(out: Path, settings: KeyedLabelSettings | None = None) -> dict[str, Any]:
    """Return one row for each method and kind of labels, named such as ``"app keyed"``; rows in ``out`` are kept."""
    how = settings or KeyedLabelSettings()
    rows = {}
    with Progress("keyed labels", len(_METHODS) * len(_LABELS)) as bar:
        for method, labels in product(_METHODS, _LABELS):
            kept = out / f"{method}-{labels}.json"
            found = read_json(kept) if kept.exists() else {}
            if found.get("settings") != plain(asdict(how)):
                with silenced():
                    found = {
                        "settings": plain(asdict(how)),
                        "row": _row(out / f"{method}-{labels}", method, labels, how),
                    }
                write_json(kept, found)
            rows[f"{method} {labels}"] = found["row"]
            bar.advance()
    return rows


def _row(folder: Path, method: str, labels: Labels, how: KeyedLabelSettings) -> dict[str, Any]:
    train, test = load("fashion-mini")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(how.seed))
    owner = train.gather(order[: how.owner_images])
    thief = train.gather(order[how.owner_images : how.owner_images + how.thief_images])
    judged = test.gather(torch.arange(min(how.test_images, len(test))))
    classes = len(train.classes)
    key = Key.create(
        kind="content", classes=classes, shape=train.shape, labels=labels, secret=expand(_MASTER, f"keyed/{how.seed}"),
        count=how.count if labels == "keyed" else None,
    )  # fmt: skip
    made = embed(
        build_model("resnet-mini", classes=classes, shape=train.shape, seed=how.seed), owner, key,
        EMBEDDINGS[method].build.for_key(key, **_METHODS[method]), seed=how.seed, device="cpu", folder=folder,
        train={
            "epochs": how.epochs, "batch_size": 64, "schedule": "one-cycle", "augmentation": "none",
            "evaluate_every": how.epochs,
        },
    )  # fmt: skip
    samples = key.samples(owner, purpose="embed")

    def asked(model: nn.Module) -> dict[str, Any]:
        found: dict[str, Any] = plain(verify(model, key, judged, embedded=samples))
        return found

    tuned = {
        rate: attack(made.model, thief, FineTuning(epochs=how.epochs, lr=rate), seed=how.seed, device="cpu")
        for rate in (*how.rates, _FT_RATE)
    }
    strong = tuned.pop(_FT_RATE)
    after = asked(strong.model)
    return {
        "method": method, "labels": labels, "before": asked(made.model), "after": after, "embed": plain(made.record),
        "attack": plain(strong.record), "ba_after": after["ba"],
        "gentle": {
            f"{rate:g}": {"verdict": asked(one.model), "attack": plain(one.record)} for rate, one in tuned.items()
        },
    }  # fmt: skip


def _work(arguments: argparse.Namespace) -> Finding:
    rows = measure_keyed_labels(arguments.folder)
    lines = []
    for name, row in rows.items():
        verdicts = {
            "before": row["before"], **{f"FT {rate}": one["verdict"] for rate, one in row["gentle"].items()},
            f"FT {_FT_RATE:g}": row["after"],
        }  # fmt: skip
        said = (f"{when} {100 * one['wsr']:.1f} % (p = {one['p_value']:.1g})" for when, one in verdicts.items())
        lines.append(f"{name}: BA {100 * row['before']['ba']:.1f} %; WSR {', '.join(said)}")
    return Finding(record=rows, lines=lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = command(__doc__)
    options.add_argument(
        "--folder", type=Path, default=Path("bench/keyed-labels"), help="finished models (default: bench/keyed-labels)"
    )
    return guarded(options.parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
