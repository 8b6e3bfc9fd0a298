"""Hand-made results of a preset in the benchmark's form: every number is written here or follows from a rule here."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indelible.base.records import Record

__all__ = ["ATTACKS", "fill_store", "make_cell", "make_results", "wsr_after"]

ATTACKS = ("ft", "fp", "anp", "nad", "mcr", "nnl")
_LEFT = {"vanilla": 0.2, "ew": 0.3, "cw": 0.1, "control": 0.5, "app": 0.9}
"""What remains of WSR 1.0 after FT; each further attack takes two points more, each further seed adds one."""

_OWN: Mapping[str, Mapping[str, Any]] = {"control": {"eps": 0.0}, "app": {"eps": 0.02}}


def wsr_after(method: str, attack: str, seed: int = 0) -> float:
    """Return the rule's number."""
    return round(_LEFT[method] - 0.02 * ATTACKS.index(attack) + 0.01 * seed, 6)


def make_cell(
    kind: str, method: str, attack: str | None, *, seed: int = 0, wsr: float | None = None, ba: float = 0.8,
    key: Mapping[str, Any] | None = None, own: Mapping[str, Any] | None = None, name: str | None = None,
    preset: str = "cifar10-cpu", **rest: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return one cell; ``name`` is the method behind a label, ``own`` its settings, ``key`` those of the key."""
    if attack is None:
        settings = {
            "data": "cifar10", "key": {"kind": kind, "target": 0, **(key or {})},
            "method": name or ("app" if method == "control" else method),
            "method_settings": own if own is not None else _OWN.get(method, {}),
        }  # fmt: skip
        rate = 1.0 if wsr is None else wsr
    else:
        settings = {"attack": attack, "attack_settings": {"epochs": 30, "lr": 0.05}}
        rate = wsr_after(method, attack, seed) if wsr is None else wsr
    curve = {
        "name": "threshold", "chosen": 0.2,
        "rows": [{"value": 0.0, "ba": 0.8, "wsr": 1.0}, {"value": 0.2, "ba": 0.79, "wsr": 0.6},
                 {"value": 0.4, "ba": 0.5, "wsr": 0.1}],
    } if attack == "anp" else None  # fmt: skip
    return {
        "dataset": "cifar10", "architecture": "resnet-mini", "kind": kind, "method": method, "attack": attack,
        "seed": seed, "settings": settings, "reported": None, "seconds": 75.0, "images_per_second": 640.0,
        "measured": {"ba": ba, "wsr": rate, "p_value": 1e-12, "owned": True}, "digest": "ab" * 32, "curve": curve,
        "command": f"indelible bench run {preset} --only '*/{kind}/{method}/{attack or 'before'}/{seed}'", **rest,
    }  # fmt: skip


def make_results(
    *, preset: str = "cifar10-cpu", kinds: Sequence[str] = ("content", "noise", "unrelated"),
    methods: Sequence[str] = tuple(_LEFT), attacks: Sequence[str] = ATTACKS, seeds: Sequence[int] = (0,),
) -> dict[str, Any]:  # fmt: skip
    """Return a whole preset."""
    cells = [
        make_cell(kind, method, attack, seed=seed, preset=preset)
        for seed in seeds
        for kind in kinds
        for method in methods
        for attack in (None, *attacks)
    ]
    return {"preset": preset, "cells": cells}


def fill_store(store: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """Write cells into a store as the ``run.json`` of finished runs, named by their numbers."""
    for number, cell in enumerate(cells):
        attacked = cell["attack"] is not None
        record = Record(
            verb="attack" if attacked else "embed", method=cell["attack"] or cell["method"], seed=cell["seed"],
            settings={}, metrics={}, seconds=cell["seconds"], images=round(640 * cell["seconds"]),
        )  # fmt: skip
        apart = {"measured", "curve", "history", "seconds", "images_per_second"}
        document = {
            "format": 2, "record": record.to_json(), "data": "cifar10", "parent": None, "verdict": cell["measured"],
            "architecture": {"name": "resnet-mini", "classes": 10, "shape": [3, 32, 32]}, "curve": cell["curve"],
            "transforms": None, "history": [], "cell": {name: cell[name] for name in cell.keys() - apart},
        }  # fmt: skip
        folder = store / "cells" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(document))
