"""The paper's numbers as measurements: Gan, Li, Wu, Xia, ICCV 2023, main text and appendix.

``assets/reported.json`` holds the printed rows, in per cent, under the labels that the presets use: WSR and BA before
attack (``none``), by attack, and the summaries that the paper prints; ``made`` is how a model was made, as far as the
paper says.

docs/reports.md lists the tables. The figures on mark size, transparency and architectures have no printed
numbers, so they have no table here.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from indelible.base.errors import UnknownNameError
from indelible.bench.measurement import Measurement

_SUMMARIES = ("avg_drop", "avg")
_BESIDE = {"cifar10": ("ablation-components",)}  # of the same models: its c-BN-only row stands in no other table
_TABLES: Mapping[str, Any] = json.loads(
    (resources.files("indelible.bench") / "assets/reported.json").read_text(encoding="utf-8")
)
REPORTED_TABLES = tuple(_TABLES)
"""Names of the paper's tables that have numbers."""


def reported(table: str, kind: str, method: str, attack: str | None = None) -> Mapping[str, float | None] | None:
    """Return ``{"ba", "wsr"}`` of a cell as the paper reports them, as fractions; None where it reports nothing.

    ``table`` is a name of :data:`REPORTED_TABLES`, the others are labels of a preset.
    """
    for name in (table, *_BESIDE.get(table, ())):
        for one in published(name):
            known = one.ba is not None or one.wsr is not None
            if known and (one.mark, one.method, one.column) == (kind, method, attack):
                return {"ba": one.ba, "wsr": one.wsr}
    return None


@cache
def published(table: str) -> tuple[Measurement, ...]:
    """Return the paper's numbers of one table."""
    if table not in _TABLES:
        raise UnknownNameError("table of the paper", table, REPORTED_TABLES)
    common = {name: value for name, value in _TABLES[table].items() if name != "rows"}
    return tuple(one for row in _TABLES[table]["rows"] for one in _measurements(**common, **row))


def _measurements(
    *, wsr: Mapping[str, float], ba: Mapping[str, float] | None = None, **coordinates: Any
) -> Iterator[Measurement]:
    """Yield a printed row: the model before attack, with the row's printed summaries, then after each attack."""
    rates = {"wsr": wsr, "ba": ba or {}}
    summaries = {
        f"{measure} {name}": printed[name] / 100
        for measure, printed in rates.items()
        for name in _SUMMARIES
        if name in printed
    }
    for column in dict.fromkeys(["none", *wsr]):
        if column in _SUMMARIES:
            continue
        # A column is an attack, or an attack at a learning rate: ft-1e-5.
        attack, _, rate = column.partition("-")
        found: dict[str, Any] = {measure: _share(printed.get(column)) for measure, printed in rates.items()}
        if attack == "none":
            yield Measurement(**coordinates, **found, printed=summaries)
        else:
            settings = {"attack_settings": {"lr": float(rate)}} if rate else {}
            yield Measurement(**coordinates, **found, attack=attack, column=column, settings=settings)


def _share(percent: float | None) -> float | None:
    return None if percent is None else round(percent / 100, 6)
