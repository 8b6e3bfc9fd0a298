"""False positives: claims with derived keys on many models that never saw a watermark.

Every model of :mod:`independent_models` is asked for several keys of each kind: codebooks, keys with a fixed target,
and with keyed labels. No verdict may be positive. What that shows: with none of N independent models claimed, the rate
of models that would be is below 3 / N at 95 % confidence (exactly 1 - 0.05^(1/N)), no better; many keys on one model
are not many models. The level of 1e-6 itself rests on the tests' own argument, not on this count.

    python experiments/null_models.py --out results/null-models.json
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from command import Finding, guarded, program
from indelible.base.files import read_json, write_json
from indelible.base.records import hardware, versions
from indelible.data.images import Data
from indelible.keys.derive import expand
from indelible.keys.key import Key
from indelible.keys.marks import MARKS
from indelible.verification.verdict import verify
from independent_models import NullModels, asked_models, null_models, with_models

__all__ = ["ClaimSettings", "NullClaims", "main", "measure_null_models"]

_MASTER = bytes(range(32))


@dataclass(frozen=True, kw_only=True)
class ClaimSettings:
    """How much is claimed on each model.

    Attributes:
        codebook: Codebooks of each kind.
        fixed: Keys of each kind with a target class.
        keyed: Keys of each kind with keyed labels.
        carriers: Test images that marks are drawn on.
        count: Samples of a key with keyed labels.
        book_carriers: Test images that every mark of a codebook is drawn on.
        alpha: Level of the decision.
    """

    codebook: int = 17
    fixed: int = 2
    keyed: int = 15
    carriers: int = 200
    count: int = 100
    book_carriers: int = 50
    alpha: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class NullClaims:
    """The outcome of one measurement.

    Attributes:
        models: Independently trained models.
        verdicts: Claims on all of them.
        owned: Claims that were upheld.
        smallest_p: Smallest p-value, by labels and kind.
        bound: Upper limit (95 %) of the share of models that would be claimed, if none was: 1 - 0.05^(1/N).
        ba: Lowest, mean and highest accuracy of the models.
        settings: What was trained and claimed.
        rows: One row a model: BA, and p-values by labels and kind.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    models: int
    verdicts: int
    owned: int
    smallest_p: Mapping[str, float]
    bound: float
    ba: tuple[float, float, float]
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)


def measure_null_models(
    out: str | Path, *, trained: NullModels | None = None, claims: ClaimSettings | None = None
) -> NullClaims:
    """Train what is not in ``out`` yet, claim every model with every key; finished models are not claimed again."""
    models, wanted = trained or NullModels(), claims or ClaimSettings()
    rows = []
    for number, (model, ba, test) in enumerate(null_models(out, models)):
        kept = Path(out) / f"model-{number:03}" / "claims.json"
        asked = {name: getattr(wanted, name) for name in wanted.__dataclass_fields__}
        if not kept.exists() or read_json(kept)["settings"] != asked:
            write_json(kept, {"settings": asked, "ba": ba, "p_values": _claims(model, test, number, wanted)})
        rows.append({name: value for name, value in read_json(kept).items() if name != "settings"})
    values = [(name, value) for row in rows for name, found in row["p_values"].items() for value in found]
    accuracies = [row["ba"] for row in rows]
    return NullClaims(
        models=len(rows), verdicts=len(values), owned=sum(value <= wanted.alpha for _, value in values),
        smallest_p={name: min(value for other, value in values if other == name) for name, _ in values},
        bound=1.0 - 0.05 ** (1.0 / len(rows)),
        ba=(min(accuracies), sum(accuracies) / len(rows), max(accuracies)),
        settings={"models": models.__dict__, "claims": wanted.__dict__}, rows=rows,
    )  # fmt: skip


def _claims(model: nn.Module, test: Data, number: int, wanted: ClaimSettings) -> dict[str, list[float]]:
    """Return p-values by labels and kind, each of keys that no other model is claimed with."""
    # Test images stand class by class or not: a stride takes all classes either way.
    carriers = test.subset(torch.arange(0, len(test), max(1, len(test) // wanted.carriers))[: wanted.carriers])
    found: dict[str, list[float]] = {}
    for kind in sorted(MARKS):
        for labels, count in (("codebook", wanted.codebook), ("fixed", wanted.fixed), ("keyed", wanted.keyed)):
            settings: dict[str, Any] = {"labels": labels, "count": wanted.count if labels == "keyed" else None}
            for one in range(count):
                secret = expand(_MASTER, f"null models/{number}/{kind}/{labels}/{one}")
                key = Key.create(kind=kind, classes=len(test.classes), shape=test.shape, secret=secret, **settings)
                asked: dict[str, Any] = {}
                if labels == "codebook":
                    asked["max_samples"] = (key.marks or 0) * wanted.book_carriers
                elif labels == "keyed":
                    asked["embedded"] = key.samples(carriers, purpose="embed")
                verdict = verify(model, key, carriers, alpha=wanted.alpha, accuracy=False, **asked)
                found.setdefault(f"{labels} {kind}", []).append(verdict.p_value)
    return found


def _work(arguments: argparse.Namespace) -> Finding:
    found = measure_null_models(arguments.folder, trained=asked_models(arguments))
    lines = [
        f"{found.owned} of {found.verdicts} claims upheld on {found.models} models that never saw a watermark.",
        f"The share of such models that would be claimed is below {found.bound:.3f} at 95 % confidence.",
        *(f"smallest p, {name}: {value:.2g}" for name, value in found.smallest_p.items()),
    ]
    return Finding(record=found, lines=lines, holds=found.owned == 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a claim was upheld."""
    return guarded(with_models(__doc__).parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
