"""Results of a preset: its records in one JSON document, for tables, figures and the repository."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from indelible.bench.cells import BenchCell
from indelible.bench.preset import BenchPreset
from indelible.bench.reported import reported
from indelible.bench.store import Store

_FORMAT = 1


def extra_fields(preset: BenchPreset, cell: BenchCell) -> dict[str, Any]:
    """Return what a preset adds to a cell's record: its name, title and attacks, the paper's number, and a command.

    The store may still be filling when a table is made of it: the attacks say which cells of a row are missing.
    """
    known = None
    if preset.reported is not None:
        known = reported(preset.reported, cell.kind, cell.method, cell.attack)
    command = f"indelible bench run {shlex.quote(preset.name)} --only {shlex.quote(cell.name)}"
    return {"preset": preset.name, **_described(preset), "reported": known, "command": command}


def collect_results(preset: BenchPreset, cells: Sequence[BenchCell], store: Store) -> dict[str, Any]:
    """Return the document: one entry for each finished cell, under the labels of this preset."""
    found = []
    for cell in cells:
        record = store.record(cell.digest)
        if record is not None:
            found.append({**record, **_labels(cell), **extra_fields(preset, cell)})
    return _document(preset, found, planned=len(cells))


def recorded_results(preset: BenchPreset, store: Store) -> dict[str, Any]:
    """Return the same of all records that were made for a preset of this name, whatever its settings were then.

    A later version of the package may have other defaults, and then plans other cells; what was measured before is
    still what was measured, with the settings that its record holds.
    """
    records = [record for digest in sorted(store.finished()) if (record := store.record(digest)) is not None]
    found = [dict(record) for record in records if record.get("preset") == preset.name]
    return _document(preset, found, planned=None)


def _document(preset: BenchPreset, found: list[dict[str, Any]], planned: int | None) -> dict[str, Any]:
    axes: dict[str, list[str | None]] = {
        "architecture": list(preset.architectures), "kind": [variant.label for variant in preset.kinds],
        "method": [variant.label for variant in preset.methods],
        "attack": [None, *(variant.label for variant in preset.attacks)],
    }  # fmt: skip

    def place(entry: Mapping[str, Any]) -> tuple[int, ...]:
        at = (axis.index(entry[name]) if entry[name] in axis else len(axis) for name, axis in axes.items())
        return (int(entry["seed"]), *at)

    once = _described(preset)
    cells = [{name: value for name, value in entry.items() if name not in once} for entry in sorted(found, key=place)]
    return {
        "format": _FORMAT, "preset": preset.name, **once, "command": preset.command, "planned": planned, "cells": cells,
    }  # fmt: skip


def _described(preset: BenchPreset) -> dict[str, Any]:
    return {"title": preset.title, "attacks": [variant.label for variant in preset.attacks]}


def _labels(cell: BenchCell) -> dict[str, Any]:
    return {
        "dataset": cell.dataset, "architecture": cell.architecture, "kind": cell.kind, "method": cell.method,
        "attack": cell.attack, "seed": cell.seed,
    }  # fmt: skip
