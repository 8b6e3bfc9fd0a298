"""The forger of a codebook: the best of many draws of its classes, on models that never saw it.

A forger cannot steer classes, only draw another secret. Marks are kept and classes drawn anew for every secret, which
gives the forger more draws than whole keys would: the models need not be asked again.

| attempt | the forger draws until | claimed |
|---|---|---|
| on surrogates | the p-value is smallest on models of its own | every victim, on fresh images |
| on the victim itself | the p-value is smallest on the very model that it claims | that model |

The second is the worst case: nothing but the draw is left to chance. If p-values are valid, the best of N draws is
at most x / N with probability at most x, so that N times the smallest p-value is itself a valid p-value. A claim is
granted when that is at most alpha. The number of claims that would pass without the factor is kept beside it: on each
victim one passes with probability N * alpha at most, 2 % for 20,000 draws at 1e-6.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from indelible.data.images import Data
from indelible.keys.codebook import class_key, drawn_classes, marks_root
from indelible.keys.derive import expand
from indelible.keys.key import Key
from indelible.train.evaluate import predict
from indelible.verification.statistics.codebook_tests import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
)
from many_draws import codebook_p_values

__all__ = ["best_draw", "codebook_forgeries", "secret_draws"]


def secret_draws(master: bytes, draws: int, *, classes: int, marks: int) -> Integers:
    """Return the classes that ``draws`` secrets give: int64 (draws, K)."""
    secrets = [expand(master, f"codebook/{number}") for number in range(draws)]
    return np.stack([
        drawn_classes(class_key(one), marks_root(one, marks), classes=classes, marks=marks).numpy() for one in secrets
    ])  # fmt: skip


def best_draw(tables: Sequence[Integers], draws: Integers) -> tuple[int, float]:
    """Return the draw with the smallest p-value, which must hold on all ``tables`` of N_i(c), and that p-value."""
    values = np.stack([codebook_p_values(codebook_scores(counts), draws) for counts in tables]).max(0)
    best = int(values.argmin())
    return best, float(values[best])


def codebook_forgeries(
    own: Sequence[nn.Module], victims: Sequence[nn.Module], known: Data, fresh: Data, kind: str, *, master: bytes,
    draws: int, alpha: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return one row for each attempt: rule, what was tried, WSR on the victims, claims granted, smallest p-value."""
    key = Key.create(kind=kind, classes=len(known.classes), shape=known.shape, secret=master)
    tried = secret_draws(master, draws, classes=key.classes, marks=len(key.codebook()))
    tables = [_table(model, key, fresh) for model in victims]
    best, _ = best_draw([_table(model, key, known) for model in own], tried)
    values = [codebook_p_value(codebook_scores(counts), tried[best]) for counts in tables]
    found = [best_draw([counts], tried) for counts in tables]
    what = f"best of {draws} draws of a {kind} codebook's classes"
    ground = _row(what, values, draws, alpha) | _rates(tables, [tried[best]] * len(tables), fresh)
    smallest = [value for _, value in found]
    itself = _row(f"{what}, on the victim itself", smallest, draws, alpha)
    itself |= _rates(tables, [tried[draw] for draw, _ in found], fresh)
    return [ground, itself | {"median_p": float(np.median(smallest))}]


def _row(attempt: str, values: Sequence[float], draws: int, alpha: float) -> dict[str, Any]:
    return {
        "rule": "derived key, p times the draws", "attempt": attempt, "claims": len(values),
        "granted": sum(draws * value <= alpha for value in values), "smallest_p": min(values),
        "granted_without_factor": sum(value <= alpha for value in values),
    }  # fmt: skip


def _table(model: nn.Module, key: Key, carriers: Data) -> Integers:
    """Return N_i(c) of a model for every mark on all carriers."""
    marks = len(key.codebook())
    samples = key.samples(carriers, purpose="verify", count=marks * len(carriers))
    answers = predict(model, samples.images).reshape(marks, -1).numpy()
    true = None if samples.true is None else samples.true.reshape(marks, -1).numpy()
    return answer_counts(answers, true, key.classes)


def _rates(tables: Sequence[Integers], drawn: Sequence[Integers], carriers: Data) -> dict[str, float]:
    """Return mean and largest WSR: carriers of another class that are answered with the class of their mark."""
    labels = torch.bincount(carriers.labels.cpu(), minlength=len(carriers.classes)).numpy()
    rates = [
        float(counts[np.arange(len(own)), own].sum() / (len(carriers) - labels[own]).sum())
        for counts, own in zip(tables, drawn, strict=True)
    ]
    return {"wsr_mean": sum(rates) / len(rates), "wsr_max": max(rates)}
