"""Ambiguity: a thief puts a key of his own into the stolen model, and then both keys verify. What settles it?

Craver et al., "Resolving Rightful Ownerships with Invisible Watermarking Techniques: Limitations, Attacks, and
Implications", 1998: two marks in one work say nothing about who was first.

An owner embeds a key in a model. A thief, who has fewer images, trains a key of his own into a copy. Four verdicts are
asked, each key on each model:

| model | owner's key | thief's key |
|---|---|---|
| the owner's | shown | **not shown**: it was made before the thief's key |
| the stolen copy | shown, if the training did not wash it out | shown |

On the copy alone the two claims are alike. The thief has no model that carries his key and not the owner's; the owner
has one. That and the earlier date of a commitment (:mod:`indelible.evidence`) settle it.

    python experiments/ambiguity.py --out results/ambiguity.json
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from command import Finding, command, guarded, program
from indelible.base.progress import silenced
from indelible.base.records import hardware, plain, versions
from indelible.data import load
from indelible.data.images import ImageData
from indelible.embedding import EMBEDDINGS, embed
from indelible.keys.derive import expand
from indelible.keys.key import Key, Labels, WatermarkSamples
from indelible.models import build_model
from indelible.train.settings import Start
from indelible.verification.verdict import verify

__all__ = ["Ambiguity", "AmbiguitySettings", "main", "measure_ambiguity"]

_MASTER = bytes(range(2, 34))
Who = Literal["owner", "thief"]
_STEPS: tuple[tuple[Who, Start], ...] = (("owner", "scratch"), ("thief", "trained"))


@dataclass(frozen=True, kw_only=True)
class AmbiguitySettings:
    """Who has what, and how both embed; the tests do less.

    Attributes:
        data: The data set.
        model: The network.
        owner_images: Training images of the owner.
        thief_images: Of the thief; none is the owner's.
        test_images: Images that BA is measured on.
        labels: Of both keys.
        count: Samples of both keys.
        owner: Method, its settings and training settings of the owner.
        thief: Of the thief, who starts from the owner's weights.
        alpha: Level of the decision.
        seed: Of all training.
    """

    data: str = "fashion-mini"
    model: str = "resnet-mini"
    owner_images: int = 1500
    thief_images: int = 600
    test_images: int = 300
    labels: Labels = "keyed"
    count: int = 40
    owner: Mapping[str, Any] = field(
        default_factory=lambda: {
            "method": "app", "alpha": 0.1,
            "train": {"epochs": 10, "batch_size": 64, "schedule": "one-cycle", "augmentation": "none"},
        }
    )  # fmt: skip
    thief: Mapping[str, Any] = field(
        default_factory=lambda: {
            "method": "app", "alpha": 0.1,
            "train": {
                "epochs": 10, "batch_size": 64, "lr": 0.01, "schedule": "one-cycle", "augmentation": "none"
            },
        }
    )  # fmt: skip
    alpha: float = 1e-6
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Ambiguity:
    """The outcome of one measurement.

    Attributes:
        rows: One row a model and key: who made the model, whose key, WSR, p-value, decision.
        ba: Accuracy of the owner's model and of the stolen one.
        both: Whether both keys verify on the stolen model: the ambiguity is there.
        settled: Whether the owner's model carries the owner's key and not the thief's.
        settings: Who had what.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    rows: Sequence[Mapping[str, Any]]
    ba: Mapping[Who, float]
    both: bool
    settled: bool
    settings: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)


def measure_ambiguity(out: str | Path | None = None, settings: AmbiguitySettings | None = None) -> Ambiguity:
    """Train the owner's model, steal it, train the thief's key into the copy, ask each key of each model.

    Args:
        out: Keep checkpoints there; a measurement that was broken off is continued.
        settings: Who has what.
    """
    how = settings or AmbiguitySettings()
    train, test = load(how.data)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(how.seed))
    images: dict[Who, ImageData] = {
        "owner": train.gather(order[: how.owner_images]),
        "thief": train.gather(order[how.owner_images : how.owner_images + how.thief_images]),
    }
    judged = test.gather(torch.arange(min(how.test_images, len(test))))
    torch.manual_seed(how.seed)
    model: nn.Module = build_model(how.model, classes=len(train.classes), shape=train.shape)
    keys: dict[Who, Key] = {}
    samples: dict[Who, WatermarkSamples] = {}
    models: dict[Who, nn.Module] = {}
    ba: dict[Who, float] = {}
    for who, start in _STEPS:
        keys[who] = Key.create(
            kind="content", classes=len(train.classes), shape=train.shape, labels=how.labels,
            count=how.count if how.labels == "keyed" else None, secret=expand(_MASTER, f"ambiguity/{how.seed}/{who}"),
        )  # fmt: skip
        own = dict(how.owner if who == "owner" else how.thief)
        train_how, name = own.pop("train"), own.pop("method")
        method = EMBEDDINGS[name].build.for_key(keys[who], start=start, **own)
        with silenced():
            folder = None if out is None else Path(out) / who
            made = embed(
                model, images[who], keys[who], method=method, start=start, train=train_how, seed=how.seed,
                device="cpu", folder=folder,
            )  # fmt: skip
        model = made.model  # what the thief starts from
        models[who], samples[who] = made.model, keys[who].samples(images[who], purpose="embed")
    rows: list[dict[str, Any]] = []
    for maker, suspect in models.items():
        for owner, key in keys.items():
            verdict = verify(suspect, key, judged, embedded=samples[owner], alpha=how.alpha)
            ba[maker] = float(verdict.ba or 0.0)
            rows.append({
                "model": maker, "key": owner, "wsr": verdict.wsr, "hits": verdict.hits, "trials": verdict.trials,
                "p_value": verdict.p_value, "owned": verdict.owned,
            })  # fmt: skip
    owned = {(row["model"], row["key"]): row["owned"] for row in rows}
    return Ambiguity(
        rows=rows, ba=ba, both=owned["thief", "owner"] and owned["thief", "thief"],
        settled=owned["owner", "owner"] and not owned["owner", "thief"], settings=plain(asdict(how)),
    )  # fmt: skip


def _work(arguments: argparse.Namespace) -> Finding:
    found = measure_ambiguity(arguments.folder)
    lines = [
        f"{row['model']}'s model, {row['key']}'s key: {row['hits']} of {row['trials']} hits, p = {row['p_value']:.1e}, "
        f"{'shown' if row['owned'] else 'not shown'}"
        for row in found.rows
    ]
    lines.append(f"both keys verify on the stolen model: {'yes' if found.both else 'no'}")
    lines.append(f"the owner's model carries the owner's key alone: {'yes' if found.settled else 'NO'}")
    return Finding(record=found, lines=lines, holds=found.settled)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if the owner's model does not settle the dispute."""
    options = command(__doc__)
    options.add_argument(
        "--folder", type=Path, default=Path("bench/ambiguity"), help="both trainings (default: bench/ambiguity)"
    )
    return guarded(options.parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
