"""Forged claims on models that never saw a watermark: what a naive rule grants, and what derived keys refuse.

Some of the models of :mod:`independent_models` are the forger's surrogates, all others its victims. Each attempt is
made on the surrogates alone and then put to every victim. The attempts are those of :mod:`forger`, and of
:mod:`codebook_forgery` for codebooks; ``naive`` rules are what they are held against:

| rule | grants a claim when |
|---|---|
| fixed threshold, free trigger | at least half of the claimant's samples are answered with its class |
| free labels | the exact test of keyed labels is passed by labels that the claimant chose |
| derived key | ``indelible.verify`` at alpha 1e-6 |

    python experiments/forgery.py --out results/forgery.json
    python experiments/forgery.py --models 40 --only 'codebook *' --out results/forgery-codebook.json
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from codebook_forgery import codebook_forgeries
from command import Finding, guarded, program
from forger import (
    grinding_bound,
    ground_key,
    ground_labels,
    keyed_p,
    said,
    stamped,
    transferable,
    universal_trigger,
)
from indelible.base.errors import InputError
from indelible.base.files import read_json, write_json
from indelible.base.progress import Progress
from indelible.base.records import hardware, plain, versions
from indelible.data.images import Data, ImageData
from indelible.keys.derive import expand
from indelible.keys.key import Key, WatermarkSamples
from indelible.train.evaluate import predict
from indelible.verification.verdict import verify
from independent_models import NullModels, asked_models, null_models, with_models

__all__ = ["Forgeries", "ForgerySettings", "main", "measure_forgery"]

_MASTER = bytes(range(1, 33))
_GROUND: tuple[str, ...] = ("content", "noise")
_KEPT = "forgery.json"


@dataclass(frozen=True, kw_only=True)
class ForgerySettings:
    """How hard the forger tries.

    Attributes:
        surrogates: Models of its own.
        images: Carriers of every attempt.
        targets: Classes that a fixed target is tried for; None for untargeted keys, whose hits are wrong answers.
        steps: Of every optimisation.
        eps: Largest change of a pixel.
        key_draws: Secrets tried for a fixed target, for each class and kind.
        label_draws: Secrets tried for keyed labels, and for the classes of a codebook of each kind.
        threshold: WSR that the naive rule asks for.
        alpha: Level of the decision.
    """

    surrogates: int = 6
    images: int = 100
    targets: Sequence[int | None] = (0, 8, None)
    steps: int = 40
    eps: float = 0.25
    key_draws: int = 200
    label_draws: int = 20_000
    threshold: float = 0.5
    alpha: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class Forgeries:
    """The outcome of one measurement.

    Attributes:
        victims: Models that were claimed.
        rows: One row an attempt: rule, what was tried, WSR on the victims, claims granted, smallest p-value.
        bound: The most likely that any of the ground claims succeeds, by the number of draws.
        settings: How hard the forger tried.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    victims: int
    rows: Sequence[Mapping[str, Any]]
    bound: float
    settings: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)


def measure_forgery(
    out: str | Path, *, trained: NullModels | None = None, settings: ForgerySettings | None = None, only: str = "*"
) -> Forgeries:
    """Train the models that are not in ``out`` yet, forge on the surrogates, claim every victim.

    Args:
        out: Where the models and finished attempts are kept.
        trained: The models.
        settings: How hard the forger tries.
        only: Attempts by name, as a pattern such as ``codebook *``.
    """
    models, how = trained or NullModels(), settings or ForgerySettings()
    if models.count <= how.surrogates:
        raise InputError(f"{how.surrogates} surrogates leave no victim among {models.count} models. Train more.")
    every = list(null_models(out, models))
    test = every[0][2]
    own, victims = [one[0] for one in every[: how.surrogates]], [one[0] for one in every[how.surrogates :]]
    # What the forger optimises on and what it is judged on are different images.
    half = len(test) // 2
    stride = max(1, half // how.images)
    known = test.gather(torch.arange(0, half, stride)[: how.images])
    fresh = test.gather(torch.arange(half, len(test), stride)[: how.images])
    attempts: dict[str, Callable[[], list[dict[str, Any]]]] = {"labels": lambda: _labels(own, victims, known, how)}
    for kind in _GROUND:
        attempts[f"codebook {kind}"] = partial(
            codebook_forgeries, own, victims, known, fresh, kind, master=_MASTER, draws=how.label_draws, alpha=how.alpha
        )
    for target in how.targets:
        attempts[f"trigger {target}"] = partial(_triggers, own, victims, known, fresh, target, how)
        for kind in _GROUND:
            attempts[f"{kind} {target}"] = partial(_ground, own, victims, known, fresh, kind, target, how)
    attempts = {name: attempt for name, attempt in attempts.items() if fnmatchcase(name, only)}
    if not attempts:
        raise InputError(f"no attempt matches {only!r}. Their names look like 'codebook noise' and 'trigger 0'.")
    rows = _made(Path(out) / _KEPT, {"models": plain(models.__dict__), "how": plain(how.__dict__)}, attempts)
    draws = sum(_draws(name, how) for name in attempts)
    return Forgeries(
        victims=len(victims), rows=rows, bound=grinding_bound(how.alpha, draws),
        settings=plain(how.__dict__),
    )  # fmt: skip


def _draws(attempt: str, how: ForgerySettings) -> int:
    """Return how many secrets an attempt tries, by its name."""
    if attempt == "labels" or attempt.startswith("codebook"):
        return how.label_draws
    return 0 if attempt.startswith("trigger") else how.key_draws


def _made(
    path: Path, settings: Mapping[str, Any], attempts: Mapping[str, Callable[[], list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    """Make every attempt that is not in ``path`` yet, and keep each; attempts of other settings are dropped."""
    kept = read_json(path) if path.exists() else {}
    done = kept["attempts"] if kept.get("settings") == settings else {}
    with Progress("forgery", len(attempts), done=sum(name in done for name in attempts)) as bar:
        for name, attempt in attempts.items():
            if name not in done:
                done[name] = attempt()
                write_json(path, {"settings": settings, "attempts": done})
                bar.advance()
    return [row for name in attempts for row in done[name]]


def _row(rule: str, attempt: str, rates: Sequence[float], granted: int, smallest: float | None) -> dict[str, Any]:
    return {
        "rule": rule, "attempt": attempt, "wsr_mean": sum(rates) / len(rates), "wsr_max": max(rates),
        "claims": len(rates), "granted": granted, "smallest_p": smallest,
    }  # fmt: skip


def _triggers(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], known: Data, fresh: Data, target: int | None,
    how: ForgerySettings,
) -> list[dict[str, Any]]:  # fmt: skip
    """A universal trigger, claimed by a fixed threshold on fresh images that are not of the target class."""
    mine, theirs = _others(known, target), _others(fresh, target)
    towards = mine.labels.cpu() if target is None else target
    pattern = universal_trigger(own, mine.images, towards, eps=how.eps, steps=how.steps)
    found = [predict(model, stamped(theirs.images, pattern)) for model in victims]
    hits = [one != theirs.labels.cpu() if target is None else one == target for one in found]
    rates = [float(one.float().mean()) for one in hits]
    granted = sum(rate >= how.threshold for rate in rates)
    return [_row("fixed threshold, free trigger", f"universal trigger, {_towards(target)}", rates, granted, None)]


def _ground(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], known: Data, fresh: Data, kind: str,
    target: int | None, how: ForgerySettings,
) -> list[dict[str, Any]]:  # fmt: skip
    """The best of many secrets with a fixed target, or none, claimed by ``verify`` on fresh images."""
    template = Key.create(
        kind=kind, classes=len(known.classes), shape=known.shape, target=target, secret=_MASTER,
        labels="untargeted" if target is None else "fixed",
    )  # fmt: skip
    secrets = (expand(_MASTER, f"ground/{kind}/{target}/{draw}") for draw in range(how.key_draws))
    key, _ = ground_key(own[:2], known, template, secrets)
    verdicts = [verify(model, key, fresh, alpha=how.alpha, accuracy=False) for model in victims]
    row = _row(
        "derived key", f"best of {how.key_draws} {kind} keys, {_towards(target)}", [one.wsr for one in verdicts],
        sum(one.owned for one in verdicts), min(one.p_value for one in verdicts),
    )  # fmt: skip
    return [row]


def _labels(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], known: Data, how: ForgerySettings
) -> list[dict[str, Any]]:
    """Adversarial samples with labels of the claimant's choice, and with the best of many draws of keyed labels."""
    plain, classes = known.gather(torch.arange(len(known))), len(known.classes)
    wanted = (plain.labels + 1 + torch.arange(len(plain)) % (classes - 1)) % classes
    images = transferable(own, plain.images, wanted, eps=how.eps, steps=how.steps)
    chosen = WatermarkSamples(images, wanted, torch.arange(len(images)), plain.labels)
    rates, values = _free_labels(victims, chosen, classes)
    free = _row(
        "free labels", "adversarial images, labels of the claimant's choice", rates,
        sum(value <= how.alpha for value in values), min(values),
    )  # fmt: skip
    template = Key.create(
        kind="noise", classes=classes, shape=known.shape, labels="keyed", count=len(images), secret=_MASTER
    )
    secrets = (expand(_MASTER, f"labels/{draw}") for draw in range(how.label_draws))
    key, samples, _ = ground_labels(own, chosen, template, secrets)
    verdicts = [verify(model, key, embedded=samples, alpha=how.alpha) for model in victims]
    ground = _row(
        "derived key", f"adversarial images, best of {how.label_draws} draws of keyed labels",
        [one.wsr for one in verdicts], sum(one.owned for one in verdicts), min(one.p_value for one in verdicts),
    )  # fmt: skip
    return [free, ground]


def _free_labels(
    victims: Sequence[nn.Module], samples: WatermarkSamples, classes: int
) -> tuple[list[float], list[float]]:
    rates, values = [], []
    for model in victims:
        answers = predict(model, samples.images)
        hits = int((answers == samples.labels).sum())
        rates.append(hits / len(samples))
        values.append(keyed_p(answers, samples.labels, samples.true, classes))
    return rates, values


def _others(data: Data, target: int | None) -> ImageData:
    """Return the images that are not of the target class; all, if there is none."""
    other = torch.ones(len(data), dtype=torch.bool) if target is None else data.labels != target
    return data.gather(other.nonzero().flatten())


def _towards(target: int | None) -> str:
    return "any wrong answer" if target is None else f"class {target}"


def _work(arguments: argparse.Namespace) -> Finding:
    found = measure_forgery(arguments.folder, trained=asked_models(arguments), only=arguments.only)
    refused = all(row["granted"] == 0 for row in found.rows if row["rule"].startswith("derived key"))
    return Finding(record=found, lines=[f"{found.victims} victims", *map(said, found.rows)], holds=refused)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a forged claim with a derived key was granted."""
    options = with_models(__doc__)
    options.add_argument("--only", default="*", metavar="PATTERN", help="attempts by name, such as 'codebook *'")
    return guarded(options.parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
