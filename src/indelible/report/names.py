"""Methods and attacks in words, so that a reader of a table needs no settings file beside it.

A control is named after what it is: APP without perturbation is "c-BN only (eps 0)", not a second APP.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from indelible.attacks import ATTACKS
from indelible.base.files import canonical_json
from indelible.base.records import Record
from indelible.embed import EMBEDDINGS

__all__ = [
    "UNMARKED",
    "attack_title",
    "attack_titles",
    "carries_mark",
    "is_marked",
    "method_title",
    "own_settings",
    "short_title",
]

UNMARKED = "Unmarked model"


def own_settings(record: Record) -> Mapping[str, Any]:
    """Return the settings of the method itself, apart from those of the training."""
    found = record.settings.get("method")
    return found if isinstance(found, Mapping) else {}


def is_marked(record: Record) -> bool:
    """Tell whether the run is one of an embedding method or an attack, not of plain training."""
    return record.verb != "train" and record.method != "none"


def carries_mark(record: Record) -> bool:
    """Tell whether the run put a watermark into its model; Vanilla with no share of marked images puts none."""
    return is_marked(record) and not (record.method == "vanilla" and own_settings(record).get("fraction") == 0)


def method_title(record: Record) -> str:
    """Name an embedding run's method in words."""
    if not carries_mark(record):
        return UNMARKED
    if record.method == "app":
        return _app_title(own_settings(record))
    return EMBEDDINGS[record.method].title if record.method in EMBEDDINGS else _last(record.method)


def _app_title(settings: Mapping[str, Any]) -> str:
    perturbed, clean = settings.get("eps", 1) != 0, settings.get("clean_bn", True)
    if perturbed:
        return "APP with c-BN" if clean else "APP only (no c-BN)"
    return "c-BN only (eps 0)" if clean else "Extra exposure only (eps 0, no c-BN)"


def short_title(method: str) -> str:
    """Write an attack's name for the head of a column: FT, or the class of ``package.module:Class``."""
    return method.upper() if ":" not in method else _last(method)


def _last(method: str) -> str:
    return method.rpartition(":")[2]


def attack_title(method: str) -> str:
    """Name an attack in words, with its short name: "fine-tuning (FT)"."""
    if method not in ATTACKS:
        return short_title(method)
    title: str = ATTACKS[method].title
    return f"{title[:1].lower()}{title[1:]} ({method.upper()})"


def attack_titles(records: Sequence[Record]) -> list[str]:
    """Give each attack run a short title; those of one method with other settings are told apart by these."""
    variants: dict[str, dict[bytes, Mapping[str, Any]]] = {}
    for record in records:
        settings = own_settings(record)
        variants.setdefault(record.method, {})[canonical_json(settings)] = settings
    return [_attack_title(record, list(variants[record.method].values())) for record in records]


def _attack_title(record: Record, variants: Sequence[Mapping[str, Any]]) -> str:
    settings = own_settings(record)
    differing = [
        name
        for name in dict.fromkeys(name for variant in variants for name in variant)
        if len({canonical_json(variant.get(name)) for variant in variants}) > 1
    ]
    short = short_title(record.method)
    if not differing:
        return short
    return f"{short} ({', '.join(f'{name} {settings.get(name)}' for name in differing)})"
