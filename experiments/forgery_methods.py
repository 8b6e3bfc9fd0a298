"""Forged claims against the systems that the paper compares itself with: ROSE and CAE.

As :mod:`forgery`, with the same independent models: some are the forger's, some an auditor's, all
others victims. Each attempt is made on the forger's models alone and then put to every victim.

| rule | what the forger does | grants a claim when |
|---|---|---|
| ROSE | draws secrets for natural images, keeps the best | ``indelible.verify`` at alpha |
| ROSE, part hashed | the first image decides all labels: picks the others to have them | binomial tail at 1/K |
| CAE, claimant's references | shows queries that suit everybody, says that none hits | ``indelible.verify`` at alpha |
| CAE, auditor's references | the same queries | the same, with the hits of the auditor's own models |

Queries that suit everybody are made in two ways: natural images that the forger's models answer rightly, their true
classes misstated; and adversarial images, each towards the wrong class that lies nearest, of which those are shown that
all of the forger's models answer alike.

    python experiments/forgery_methods.py --out results/forgery-methods.json
"""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from command import Finding, guarded, program
from forger import ground_labels, said, transferable
from indelible.base.errors import InputError
from indelible.base.records import hardware, plain, versions
from indelible.data.augment import to_float
from indelible.data.images import ImageData
from indelible.keys.derive import Choices, expand
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.samples import Fingerprint
from indelible.nn.outputs import logits_of
from indelible.train.evaluate import predict
from indelible.verification.statistics.exact_tests import binomial_tail
from indelible.verification.verdict import verify
from independent_models import NullModels, asked_models, null_models, with_models

__all__ = ["MethodForgeries", "MethodForgerySettings", "main", "measure_method_forgery"]

_MASTER = bytes(range(2, 34))


@dataclass(frozen=True, kw_only=True)
class MethodForgerySettings:
    """How hard the forger tries.

    Attributes:
        surrogates: Models of its own.
        references: Models of the auditor.
        key_images: Of a ROSE claim.
        draws: Secrets tried.
        queries: Of a CAE claim; three times as many adversarial images are made.
        steps: Of the optimisation.
        eps: Largest change of a pixel.
        alpha: Level of the decision.
    """

    surrogates: int = 6
    references: int = 6
    key_images: int = 40
    draws: int = 20_000
    queries: int = 100
    steps: int = 40
    eps: float = 0.25
    alpha: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class MethodForgeries:
    """The outcome of one measurement.

    Attributes:
        victims: Models that were claimed.
        rows: One row a rule: what was tried, WSR on the victims, claims granted, smallest p-value.
        settings: What was trained, and how hard the forger tried.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    victims: int
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)


def measure_method_forgery(
    out: str | Path, *, trained: NullModels | None = None, settings: MethodForgerySettings | None = None
) -> MethodForgeries:
    """Train the models that are not in ``out`` yet, forge on the forger's, claim every victim."""
    models, how = trained or NullModels(), settings or MethodForgerySettings()
    if models.count <= how.surrogates + how.references:
        raise InputError(
            f"{how.surrogates} models of the forger and {how.references} of the auditor leave no victim among "
            f"{models.count}. Train more."
        )
    every = list(null_models(out, models))
    nets, test = [one[0] for one in every], every[0][2]
    own, auditor = nets[: how.surrogates], nets[how.surrogates : how.surrogates + how.references]
    victims, images = nets[how.surrogates + how.references :], test.gather(torch.arange(len(test)))
    rows = [
        _rose(own, victims, images, how), _part_hashed(own, victims, images, how),
        *_cae(own, auditor, victims, images, how),
    ]  # fmt: skip
    return MethodForgeries(
        victims=len(victims), rows=rows, settings={"models": plain(models.__dict__), "how": plain(how.__dict__)}
    )


def _row(
    rule: str, attempt: str, rates: Sequence[float], values: Sequence[float], how: MethodForgerySettings
) -> dict[str, Any]:
    return {
        "rule": rule, "attempt": attempt, "wsr_mean": sum(rates) / len(rates), "wsr_max": max(rates),
        "claims": len(rates), "granted": sum(value <= how.alpha for value in values), "smallest_p": min(values),
    }  # fmt: skip


def _claims(
    victims: Sequence[nn.Module], key: Key, samples: WatermarkSamples | None, how: MethodForgerySettings
) -> tuple[list[float], list[float]]:
    """Return WSR and p-value of the claim on every victim."""
    verdicts = [verify(model, key, embedded=samples, alpha=how.alpha) for model in victims]
    return [one.wsr for one in verdicts], [one.p_value for one in verdicts]


def _rose(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], images: ImageData, how: MethodForgerySettings
) -> dict[str, Any]:
    """The best of many secrets for natural images of the forger's choice."""
    shown = images.subset(torch.arange(0, len(images), max(1, len(images) // how.key_images))[: how.key_images])
    made = WatermarkSamples(shown.images, shown.labels, torch.arange(len(shown)), shown.labels)
    template = Key.create(
        kind="plain", classes=len(images.classes), shape=images.shape, labels="keyed", count=len(shown), secret=_MASTER
    )
    secrets = (expand(_MASTER, f"rose/{draw}") for draw in range(how.draws))
    key, samples, _ = ground_labels(own, made, template, secrets)
    return _row("ROSE", f"best of {how.draws} secrets", *_claims(victims, key, samples, how), how)


def _part_hashed(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], images: ImageData, how: MethodForgerySettings
) -> dict[str, Any]:
    """Natural images, chosen after the labels: what a hash allows that does not read them all."""
    classes = len(images.classes)
    seed = hashlib.sha256(_MASTER + images.images[0].numpy().tobytes()).digest()
    labels = torch.from_numpy(Choices(seed, "labels/draw").numbers(classes, how.key_images))
    likely, rows = _likely(own, images.images), [0]  # the first image is the one that is hashed
    for label in labels[1:].tolist():
        likely[rows[-1]] = -1.0  # used
        rows.append(int(likely[:, label].argmax()))
    shown = images.images[torch.tensor(rows)]
    hits = [int((predict(model, shown) == labels).sum()) for model in victims]
    values = [binomial_tail(found, len(labels), 1.0 / classes) for found in hits]
    rates = [found / len(labels) for found in hits]
    return _row("ROSE, part hashed", "natural images, chosen after their labels", rates, values, how)


def _likely(models: Sequence[nn.Module], images: Tensor) -> Tensor:
    """Return the models' mean probabilities, (n, K)."""
    with torch.no_grad():
        return torch.stack([logits_of(model.eval()(to_float(images))).softmax(1) for model in models]).mean(0)


def _agreed(models: Sequence[nn.Module], images: Tensor) -> Tensor:
    """Return the class on which all models agree, -1 where they do not."""
    found = torch.stack([predict(model, images) for model in models])
    return torch.where((found == found[0]).all(0), found[0], -1)


def _cae(
    own: Sequence[nn.Module], auditor: Sequence[nn.Module], victims: Sequence[nn.Module], images: ImageData,
    how: MethodForgerySettings,
) -> list[dict[str, Any]]:  # fmt: skip
    """Queries that everybody's model answers alike, passed off as a fingerprint."""
    begun = Key.create(kind="noise", classes=len(images.classes), shape=images.shape, target=0, secret=_MASTER)
    rows = []
    for attempt, samples in (
        ("natural images", _natural(own, images, how)),
        ("adversarial", _nearest(own, images, how)),
    ):
        told = {
            "claimant's": torch.zeros(how.references, dtype=torch.int64),
            "auditor's": torch.tensor([int((predict(one, samples.images) == samples.labels).sum()) for one in auditor]),
        }
        for whose, hits in told.items():
            key = replace(
                begun, kind="fingerprint", labels="stored", target=None, fingerprint=Fingerprint(samples, hits)
            )
            rows.append(_row(f"CAE, {whose} references", attempt, *_claims(victims, key, None, how), how))
    return rows


def _natural(own: Sequence[nn.Module], images: ImageData, how: MethodForgerySettings) -> WatermarkSamples:
    """Images that all of the forger's models answer rightly; of which class they are, the forger says as it likes."""
    rows = (_agreed(own, images.images) == images.labels).nonzero().flatten()
    rows = rows[:: max(1, len(rows) // how.queries)][: how.queries]
    labels = images.labels[rows]
    return WatermarkSamples(images.images[rows], labels, rows, (labels + 1) % len(images.classes))


def _nearest(own: Sequence[nn.Module], images: ImageData, how: MethodForgerySettings) -> WatermarkSamples:
    """Images led to the wrong class that the forger's models find likeliest; those that all of them answer so."""
    rows = torch.arange(0, len(images), max(1, len(images) // (3 * how.queries)))[: 3 * how.queries]
    shown, true = images.images[rows], images.labels[rows]
    wanted = _likely(own, shown).scatter(1, true[:, None], -1.0).argmax(1)
    made = transferable(own, shown, wanted, eps=how.eps, steps=how.steps)
    kept = (_agreed(own, made) == wanted).nonzero().flatten()[: how.queries]
    if len(kept) == 0:
        raise InputError("the forger's models agree on none of its images. Allow more steps or a larger eps.")
    return WatermarkSamples(made[kept], wanted[kept], rows[kept], true[kept])


def _work(arguments: argparse.Namespace) -> Finding:
    found = measure_method_forgery(arguments.folder, trained=asked_models(arguments))
    refused = all(row["granted"] == 0 for row in found.rows if row["rule"] == "ROSE")
    return Finding(record=found, lines=[f"{found.victims} victims", *map(said, found.rows)], holds=refused)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a forged claim against ROSE was granted."""
    return guarded(with_models(__doc__).parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
