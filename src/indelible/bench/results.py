"""Results of a preset: its records in one JSON document, for tables, figures and the repository."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from indelible.bench.cells import Cell
from indelible.bench.preset import Preset
from indelible.bench.reported import reported
from indelible.bench.store import Store

__all__ = ["collect_results", "extra_fields"]

_FORMAT = 1


def extra_fields(preset: Preset, cell: Cell) -> dict[str, Any]:
    """Return what a preset adds to a cell's record: the paper's number, and the command that does the cell again."""
    known = None
    if preset.reported is not None:
        known = reported(preset.reported, cell.kind, cell.method, cell.attack)
    command = f"indelible bench run {shlex.quote(preset.name)} --only {shlex.quote(cell.name)}"
    return {"reported": known, "command": command}


def collect_results(preset: Preset, cells: Sequence[Cell], store: Store) -> dict[str, Any]:
    """Return the document: one entry for each finished cell, under the labels of this preset."""
    found = []
    for cell in sorted(cells, key=lambda cell: (cell.seed, cell.needs or cell.digest, cell.attack is not None)):
        record = store.record(cell.digest)
        if record is not None:
            found.append({**record, **_labels(cell), **extra_fields(preset, cell)})
    order = {cell.name: number for number, cell in enumerate(_in_table_order(preset, cells))}
    found.sort(key=lambda entry: order[_name(entry)])
    return {
        "format": _FORMAT, "preset": preset.name, "title": preset.title, "command": preset.command,
        "planned": len(cells), "cells": found,
    }  # fmt: skip


def _labels(cell: Cell) -> dict[str, Any]:
    return {
        "dataset": cell.dataset, "architecture": cell.architecture, "kind": cell.kind, "method": cell.method,
        "attack": cell.attack, "seed": cell.seed,
    }  # fmt: skip


def _name(entry: Mapping[str, Any]) -> str:
    return str(Cell(**{name: entry[name] for name in Cell.__dataclass_fields__}).name)


def _in_table_order(preset: Preset, cells: Sequence[Cell]) -> list[Cell]:
    kinds = [variant.label for variant in preset.kinds]
    methods = [variant.label for variant in preset.methods]
    attacks = [None, *(variant.label for variant in preset.attacks)]

    def place(cell: Cell) -> tuple[int, int, int, int, int]:
        return (
            cell.seed, preset.architectures.index(cell.architecture), kinds.index(cell.kind),
            methods.index(cell.method), attacks.index(cell.attack),
        )  # fmt: skip

    return sorted(cells, key=place)
