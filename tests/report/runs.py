"""Hand-made runs: every number in them is written here, so that tests know what a report must say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from indelible.base.records import Record
from indelible.data.splits import Split
from indelible.keys.key import Key
from indelible.train.run_folder import Architecture, Run

__all__ = ["SECRET", "make_demo", "make_run", "make_verdict"]

SECRET = bytes(range(100, 132))
_SPLIT = Split(torch.arange(64), torch.arange(64, 96), 7500, 0)


def make_verdict(*, owned: bool, wsr: float, p_value: float, ba: float | None = None) -> dict[str, Any]:
    return {
        "owned": owned, "wsr": wsr, "p_value": p_value, "alpha": 1e-6, "queries": 4800, "test": "exact binomial",
        "hits": round(1800 * wsr), "trials": 1800, "decoy_rate": 0.02, "null_rate": 0.05, "ba": ba,
        "wsr_embedded": None, "key": "00" * 32, "assumptions": ["the key was fixed before the suspect was seen"],
        "sentence": f"{'Derived' if owned else 'Not shown to be derived'}: {round(1800 * wsr)} of 1800.",
        "versions": {},
    }  # fmt: skip


def make_run(
    folder: Path, method: str = "vanilla", *, verb: str = "embed", settings: Mapping[str, Any] | None = None,
    seed: int = 0, metrics: Mapping[str, Any] | None = None, verdict: Mapping[str, Any] | None = None,
    parent: Path | None = None, history: Sequence[Mapping[str, Any]] = (), key: Key | None = None,
    data: str = "fashion-mini", seconds: float = 12.5,
) -> Path:  # fmt: skip
    record = Record(
        verb=verb, method=method, settings={"method": dict(settings or {})}, seed=seed, metrics=dict(metrics or {}),
        inputs={} if key is None else {"key": key.digest, "target": key.target}, seconds=seconds, images=25_000,
        versions={"torch": "2.6.0"}, hardware={"device": "cpu", "processor": "a processor"},
    )  # fmt: skip
    Run.save(
        folder, model=nn.Linear(1, 1), record=record, data=data, split=_SPLIT, key=key, parent=parent,
        architecture=Architecture(name="resnet-w8", classes=10, shape=(1, 28, 28)), verdict=verdict, history=history,
    )  # fmt: skip
    return folder


def make_demo(root: Path) -> Path:
    """Make the demo's rows: three marked models, each before and after FT, and an unmarked one."""
    key = Key.create(classes=10, shape=(1, 28, 28), target=3, secret=SECRET)
    rows: list[tuple[str, str, dict[str, Any], tuple[float, float, float], tuple[float, float, float]]] = [
        ("vanilla", "vanilla", {"fraction": 0.01}, (0.823, 0.9876, 0.0), (0.8149, 0.1234, 0.42)),
        ("control", "app", {"eps": 0.0, "clean_bn": True}, (0.82, 1.0, 0.0), (0.81, 0.7004, 2.6e-12)),
        ("app", "app", {"eps": 0.02, "clean_bn": True}, (0.8151, 1.0, 0.0), (0.8049, 0.9196, 0.0)),
    ]
    for name, method, settings, before, after in rows:
        parent = make_run(
            root / name, method, settings=settings, key=key,
            metrics={"ba": before[0], "wsr": before[1], "wsr_embedded": 0.995},
            verdict=make_verdict(owned=True, ba=before[0], wsr=before[1], p_value=before[2]),
            history=[{"epoch": 1, "loss": 1.5}, {"epoch": 2, "loss": 0.8, "ba": before[0], "wsr": before[1]}],
        )  # fmt: skip
        make_run(
            root / f"{name}-ft", "ft", verb="attack", settings={"protocol": "sound", "lr": 0.05}, parent=parent,
            verdict=make_verdict(owned=after[2] <= 1e-6, ba=after[0], wsr=after[1], p_value=after[2]),
            history=[{"epoch": 1, "loss": 0.7, "accuracy_attacker": 0.8}, {"epoch": 2, "loss": 0.6}],
        )  # fmt: skip
    make_run(
        root / "unmarked", "none", verb="train", metrics={"ba": 0.83},
        verdict=make_verdict(owned=False, ba=0.83, wsr=0.031, p_value=0.61),
        history=[{"epoch": 1, "loss": 1.4}, {"epoch": 2, "loss": 0.7, "ba": 0.83}],
    )  # fmt: skip
    return root
