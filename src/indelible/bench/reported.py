"""The paper's numbers, as data: what its tables report for a (kind, method, attack).

``assets/reported.json`` holds the tables as they are printed, in percent. Here they are brought to one form: a table's
name, the labels that the presets use, and rates as fractions.

| table | labels of kinds | labels of methods | labels of attacks |
|---|---|---|---|
| ``cifar10``, ``cifar100``, ``imagenet100`` | content, noise, unrelated | vanilla, ew, cw, app | ft ... nnl |
| ``ablation-components`` | content | vanilla, control (c-BN only), app-only, app | ft ... nnl |
| ``ablation-epsilon`` | content | eps-0.005 ... eps-0.04 | ft ... nnl |
| ``ablation-target`` | target-0 ... target-4 | vanilla, app | ft ... nnl |
| ``mobilenetv2`` | content | vanilla, ew, cw, app | ft ... nnl |
| ``adversarial-training`` | content | vanilla, pgd-at, trades, app | ft ... nnl |
| ``ft-learning-rates`` | content | rose, ntl, cae, app | ft-1e-5, ft-1e-3, ft-1e-2, ft-2e-2 |

``cifar10`` also knows the c-BN-only row of the ablation, as ``control``.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from indelible.base.errors import UnknownNameError

__all__ = ["REPORTED_TABLES", "printed", "reported"]

REPORTED_TABLES = (
    "cifar10", "cifar100", "imagenet100", "ablation-components", "ablation-epsilon", "ablation-target", "mobilenetv2",
    "adversarial-training", "ft-learning-rates",
)  # fmt: skip
_MAIN = ("cifar10", "cifar100", "imagenet100")
_ATTACKS = ("none", "ft", "fp", "anp", "nad", "mcr", "nnl")
_COMPONENTS = {(False, False): "vanilla", (False, True): "control", (True, False): "app-only", (True, True): "app"}
Entry = tuple[str, str, str, str, str, float]


def reported(dataset: str, kind: str, method: str, attack: str | None = None) -> Mapping[str, float | None] | None:
    """Return ``{"ba", "wsr"}`` as the paper reports them, as fractions; None where it reports nothing.

    Args:
        dataset: A table's name.
        kind: Label of the kind of mark.
        method: Label of the method.
        attack: Label of the attack; None is before any attack.
    """
    if dataset not in REPORTED_TABLES:
        raise UnknownNameError("table of the paper", dataset, REPORTED_TABLES)
    return _tables().get((dataset, kind, method, attack or "none"))


@cache
def printed() -> Mapping[str, Any]:
    """Return the tables as they are printed, in percent, summaries included; not to be changed."""
    text = (resources.files("indelible.bench") / "assets/reported.json").read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


@cache
def _tables() -> Mapping[tuple[str, str, str, str], Mapping[str, float | None]]:
    raw = printed()
    found: dict[tuple[str, str, str, str], dict[str, float | None]] = {}
    for table, kind, method, attack, measure, percent in _entries(raw):
        rates = found.setdefault((table, kind, method, attack), {"ba": None, "wsr": None})
        rates[measure] = round(percent / 100, 6)
    return found


def _entries(raw: Mapping[str, Any]) -> Iterator[Entry]:
    for table in _MAIN:
        for kind in raw[table]["WSR"]:
            yield from _rows(table, kind, {name: raw[table][name][kind] for name in ("WSR", "BA")})
    yield from _rows("mobilenetv2", "content", raw["mobilenetv2_cifar10_content"])
    for row in raw["ablation_cifar10_content"]:
        method = _COMPONENTS[row["app"], row["cbn"]]
        for table in ("ablation-components", *(["cifar10"] if method == "control" else [])):
            yield from _columns(table, "content", method, "wsr", {**row, "none": row["wsr"]})
            yield table, "content", method, "none", "ba", row["ba"]
    epsilon = raw["epsilon_cifar10_content_app"]
    for measure in ("WSR", "BA"):
        for eps, row in epsilon[measure].items():
            yield from _columns("ablation-epsilon", "content", f"eps-{float(eps):g}", measure.lower(), row)
        for method in ("vanilla", "app"):
            for target, row in raw[f"target_cifar10_content_{method}"][measure].items():
                yield from _columns("ablation-target", f"target-{target}", method, measure.lower(), row)
    for row in raw["adversarial_training_cifar10_content"]:
        yield from _columns("adversarial-training", "content", row["method"], "wsr", row)
    yield from _learning_rates(raw["other_methods_ft_lr"])


def _rows(table: str, kind: str, measures: Mapping[str, Any]) -> Iterator[Entry]:
    for measure in ("WSR", "BA"):
        for method, row in measures[measure].items():
            yield from _columns(table, kind, method, measure.lower(), row)


def _columns(table: str, kind: str, method: str, measure: str, row: Mapping[str, Any]) -> Iterator[Entry]:
    for attack in _ATTACKS:
        if row.get(attack) is not None:
            yield table, kind, method, attack, measure, row[attack]


def _learning_rates(rows: Any) -> Iterator[Entry]:
    for row in rows:
        if row["from_original_paper"]:
            continue  # quoted by the paper from elsewhere, at settings of their own
        yield "ft-learning-rates", "content", row["method"], "none", "wsr", row["before"]
        for name, value in row.items():
            if name.startswith("ft_lr_") and value is not None:
                yield "ft-learning-rates", "content", row["method"], f"ft-{name[6:]}", "wsr", value
