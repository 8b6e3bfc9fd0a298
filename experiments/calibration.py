"""Calibration: are p-values what they claim to be, and is power what the planner says?

Null verdicts are made by :func:`indelible.verify` itself on suspects that answer by chance, each verdict with a new key
and a new suspect; p-values at most alpha must come in a share of at most alpha. Images are tiny, for speed: their
pixels decide nothing.

| null | how a suspect answers |
|---|---|
| uniform | any class, equally likely |
| skewed | classes by weights drawn anew for each suspect, often one of them most of the time |
| constant | one class always |
| accurate | the true class nine times of ten, else by skewed weights |
| sticky | skewed, and answers come in runs of five; for tests that do not assume independent answers |
| uneven | to each key's samples the target at a rate of the key's own, drawn from Beta(0.5, 4) |

The sequential test is looked at after every mark. Power: suspects that know the key at a given rate, asked as many
queries as planned.

The tests of a codebook are also put to suspects that try to be mistaken for marked ones
(:mod:`codebook_suspects`).

    python experiments/calibration.py --out results/calibration.json
"""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codebook_suspects import BOOK_NULLS, codebook_null
from command import Finding, command, guarded, program
from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.base.records import hardware, versions
from indelible.data.images import ImageData
from indelible.keys.derive import expand
from indelible.keys.key import Key, WatermarkSamples
from indelible.verification.planner import plan
from indelible.verification.statistics.exact_tests import binomial_tail, rank_p_value
from indelible.verification.verdict import verify

__all__ = ["NULLS", "Calibration", "main", "measure_calibration", "null_p_values"]

ALPHAS = (0.05, 0.01, 0.001)
NULLS = ("uniform", "skewed", "constant", "accurate", "sticky", "uneven")
_CLASSES, _CARRIERS, _SHAPE = 10, 60, (1, 3, 3)
_ANY = ("uniform", "skewed", "constant", "accurate", "sticky")
# Test, labels, the nulls that its assumptions cover.
CASES: Sequence[tuple[str, str, Sequence[str]]] = (
    ("codebook", "codebook", ("skewed", "sticky")),
    ("sequential", "codebook", ("skewed",)),
    ("keyed", "keyed", _ANY),
    ("binomial", "fixed", ("skewed", "constant", "uneven")),
    ("paired", "fixed", ("skewed", "accurate")),
    ("decoys", "fixed", ("skewed", "sticky")),
)
_MASTER = bytes(range(32))
_RANK_DECOYS = 19
_DECOYS = 8  # fewer than a verdict asks by default: quicker, and the weaker bound is the harder case


class _Guessing:
    """A suspect that answers by chance; ``null`` names how."""

    def __init__(self, null: str, seed: int, target: int | None) -> None:
        self.random = np.random.default_rng(seed)
        self.null, self.target = null, target
        weights = np.full(_CLASSES, 0.1) if null == "uniform" else self.random.dirichlet(np.full(_CLASSES, 0.3))
        self.weights = np.eye(_CLASSES)[self.random.integers(_CLASSES)] if null == "constant" else weights
        self.left, self.last = 0, 0

    def predict(self, images: Tensor) -> Tensor:
        """Answer by chance."""
        count = len(images)
        found = self.random.choice(_CLASSES, size=count, p=self.weights)
        if self.null == "accurate":
            # Pixels carry the class in their upper corner, which no mark is strong enough to hide.
            true = (images[:, 0, 0, 0].numpy().astype(np.int64) + 12) // 25
            found = np.where(self.random.random(count) < 0.9, np.minimum(true, _CLASSES - 1), found)
        if self.null == "sticky":
            for row in range(count):
                if self.left == 0:
                    self.left, self.last = 5, int(found[row])
                found[row], self.left = self.last, self.left - 1
        if self.null == "uneven" and self.target is not None:
            rate = self.random.beta(0.5, 4.0)  # one call holds one key's samples
            found = np.where(self.random.random(count) < rate, self.target, (self.target + 1) % _CLASSES)
        return torch.from_numpy(found.astype(np.int64))


def _carriers() -> ImageData:
    labels = torch.arange(_CARRIERS) % _CLASSES
    images = (25 * labels)[:, None, None, None].expand(_CARRIERS, *_SHAPE).to(torch.uint8).clone()
    return ImageData(images, labels, tuple(map(str, range(_CLASSES))), "squares")


def _key(labels: str, number: int) -> Key:
    settings: dict[str, Any] = {"labels": labels, "count": _CARRIERS if labels == "keyed" else None}
    secret = expand(_MASTER, f"calibration/{number}")
    return Key.create(kind="noise", classes=_CLASSES, shape=_SHAPE, strength=0.02, secret=secret, **settings)


def null_p_values(test: str, labels: str, null: str, verdicts: int, *, seed: int = 0) -> list[float]:
    """Return the p-values of ``verdicts`` verdicts, each of a new key on a new suspect that never saw it."""
    carriers, found = _carriers(), []
    for number in range(verdicts):
        key = _key(labels, seed * 1_000_000 + number)
        suspect = _Guessing(null, seed * 1_000_000 + number, key.target)
        alpha, decoys = (0.05, _RANK_DECOYS) if test == "decoys" else (0.001, _DECOYS)
        embedded = key.samples(carriers, purpose="embed") if labels == "keyed" else None
        verdict = verify(
            suspect, key, carriers, procedure=test, alpha=alpha, decoys=decoys, embedded=embedded, accuracy=False
        )
        found.append(verdict.p_value)
    return found


def rank_null(verdicts: int, decoys: int, *, seed: int = 0) -> list[float]:
    """Return p-values of the rank test with many decoys, whose hits come at rates of their own, by simulated counts."""
    random = np.random.default_rng(seed)
    rates = random.beta(0.5, 4.0, size=(verdicts, decoys + 1))
    hits = random.binomial(200, rates)
    return [rank_p_value(int(row[0]), row[1:].tolist()) for row in hits]


def binomial_null(verdicts: int, *, seed: int = 0) -> list[float]:
    """Return p-values of the exact binomial at a null rate that is known and met: 30 queries at 0.1."""
    hits = np.random.default_rng(seed).binomial(30, 0.1, size=verdicts)
    return [binomial_tail(int(found), 30, 0.1) for found in hits]


class _Knowing:
    """A suspect that gives the key's label to a share of its samples; decoys never hit."""

    def __init__(self, samples: WatermarkSamples, wsr: float, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.labels, self.wsr, self.asked = samples.labels, wsr, False
        # A miss is neither the label nor the true class: the worst case, for which the plan was made.
        next_ = (samples.labels + 1) % _CLASSES
        step = torch.ones_like(next_) if samples.true is None else (samples.true == next_).long() + 1
        self.others = (samples.labels + step) % _CLASSES

    def predict(self, images: Tensor) -> Tensor:
        """Answer the key's samples, which come first, by the rate; decoys' with a class that is no hit."""
        if self.asked:
            return self.others[:1].expand(len(images))
        self.asked = True
        known = torch.from_numpy(self.random.random(len(images)) < self.wsr)
        return torch.where(known, self.labels, self.others)


def power_found(labels: str, wsr: float, *, verdicts: int, alpha: float = 1e-6, seed: int = 0) -> Mapping[str, float]:
    """Return planned and found power of the keyed test, or of the binomial one at its floor of the null rate."""
    rate = 1.0 / (_CLASSES - 1) if labels == "keyed" else 0.5
    # Of a fixed target's alpha, a tenth is spent on the decoys' limit.
    planned = plan(wsr, alpha=alpha if labels == "keyed" else 0.9 * alpha, null_rate=rate, power=0.9)
    classes = torch.arange(4 * planned.queries) % _CLASSES
    images = (25 * classes)[:, None, None, None].expand(len(classes), *_SHAPE).to(torch.uint8).clone()
    carriers = ImageData(images, classes, tuple(map(str, range(_CLASSES))), "squares")
    owned = 0
    for number in range(verdicts):
        secret = expand(_MASTER, f"power/{seed}/{number}")
        settings: dict[str, Any] = {"labels": labels, "count": planned.queries if labels == "keyed" else None}
        key = Key.create(kind="noise", classes=_CLASSES, shape=_SHAPE, strength=0.02, secret=secret, **settings)
        if labels == "keyed":
            samples = key.samples(carriers, purpose="embed")
        else:
            samples = key.samples(carriers, purpose="verify", count=planned.queries)
        suspect = _Knowing(samples, wsr, number)
        asked: dict[str, Any] = {"embedded": samples} if labels == "keyed" else {"max_samples": planned.queries}
        owned += verify(suspect, key, carriers, alpha=alpha, accuracy=False, decoys=1, **asked).owned
    return {"wsr": wsr, "queries": planned.queries, "planned": planned.power, "found": owned / verdicts}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The outcome of one measurement.

    Attributes:
        verdicts: Null verdicts of each row.
        rows: Test, labels, null, the share of p-values at most each alpha, and the share that binomial error allows.
        power: Planned and found power, by labels and WSR.
        seconds: Time it took.
        versions: Versions of the packages that decide a result.
        hardware: The device that did the work.
    """

    verdicts: int
    rows: Sequence[Mapping[str, Any]]
    power: Sequence[Mapping[str, Any]]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)

    @property
    def holds(self) -> bool:
        """Whether no share is above what binomial error allows, and power is within two points of the plan."""
        calibrated = all(share["found"] <= share["allowed"] for row in self.rows for share in row["shares"].values())
        return calibrated and all(abs(row["planned"] - row["found"]) <= 0.02 for row in self.power)


def allowed(alpha: float, verdicts: int) -> float:
    """Return the largest share that alpha itself gives in ``verdicts`` draws but for once in a thousand times."""
    from scipy.stats import binom

    return float(binom.ppf(0.999, verdicts, alpha)) / verdicts


def _row(test: str, labels: str, null: str, values: Sequence[float]) -> dict[str, Any]:
    count = len(values)
    shares = {
        str(alpha): {
            "found": sum(value <= alpha * (1 + 1e-12) for value in values) / count, "allowed": allowed(alpha, count)
        }
        for alpha in ALPHAS
    }  # fmt: skip
    return {"test": test, "labels": labels, "null": null, "verdicts": count, "shares": shares}


def measure_calibration(
    *, verdicts: int = 2000, power_verdicts: int = 3000, seed: int = 0,
    cases: Sequence[tuple[str, str, Sequence[str]]] = CASES, note: Callable[[str], None] | None = None,
) -> Calibration:  # fmt: skip
    """Make null verdicts by every test on every null that its assumptions cover, and compare power with the plan."""
    began, rows, power = time.perf_counter(), [], []
    with Progress("calibration", sum(len(nulls) for _, _, nulls in cases) + 6 + 2 * len(BOOK_NULLS)) as bar:
        for test, labels, nulls in cases:
            for null in nulls:
                rows.append(_row(test, labels, null, null_p_values(test, labels, null, verdicts, seed=seed)))
                bar.advance()
                if note is not None:
                    note(f"{test} {labels} {null}")
        for null in BOOK_NULLS:
            for name, sequential in (("codebook", False), ("sequential", True)):
                values = codebook_null(null, max(1, verdicts // 2), sequential=sequential, seed=seed)
                rows.append(_row(f"{name} (by counts)", "codebook", null, values))
                bar.advance()
        rows.append(_row("decoys (999, by counts)", "fixed", "uneven", rank_null(10 * verdicts, 999, seed=seed)))
        rows.append(_row("binomial (rate known, by counts)", "fixed", "0.1", binomial_null(10 * verdicts, seed=seed)))
        bar.advance(2)
        for labels, wsr in (("keyed", 0.3), ("keyed", 0.6), ("fixed", 0.7), ("fixed", 0.9)):
            if power_verdicts:
                power.append({"labels": labels, **power_found(labels, wsr, verdicts=power_verdicts, seed=seed)})
            bar.advance()
    return Calibration(verdicts=verdicts, rows=rows, power=power, seconds=math.ceil(time.perf_counter() - began))


def _work(arguments: argparse.Namespace) -> Finding:
    if arguments.verdicts < 1:
        raise InputError(f"--verdicts must be at least 1, got {arguments.verdicts}.")
    found = measure_calibration(verdicts=arguments.verdicts, power_verdicts=3 * arguments.verdicts // 2)
    lines = [f"{'test':34} {'labels':7} {'null':9} share of p-values <= alpha (allowed)"]
    for row in found.rows:
        shares = "  ".join(
            f"{alpha}: {share['found']:.4f} ({share['allowed']:.4f})" for alpha, share in row["shares"].items()
        )
        lines.append(f"{row['test']:34} {row['labels']:7} {row['null']:9} {shares}")
    lines += [
        f"power, {row['labels']} labels, WSR {row['wsr']:g}: {row['queries']} queries, planned {row['planned']:.3f}, "
        f"found {row['found']:.3f}"
        for row in found.power
    ]
    return Finding(record=found, lines=[*lines, "holds" if found.holds else "DOES NOT HOLD"], holds=found.holds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a share of p-values or a power is not what it should be."""
    options = command(__doc__)
    options.add_argument("--verdicts", type=int, default=2000, help="null verdicts of each row (default: 2000)")
    return guarded(options.parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
