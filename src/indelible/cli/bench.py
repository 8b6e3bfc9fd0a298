"""``indelible bench``: tables and figures by name, cell by cell."""

import argparse
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import indelible
from indelible.base.errors import UnknownNameError
from indelible.cli import options
from indelible.cli.options import emit

if TYPE_CHECKING:
    from indelible.bench.cells import BenchCell
    from indelible.bench.estimate import Estimate
    from indelible.bench.preset import BenchPreset
    from indelible.bench.runner import Engine
    from indelible.bench.store import Store

HELP = "run a table or figure: methods x kinds x attacks x seeds, resumable, on all cores or a cluster"
EXAMPLES = [
    "indelible bench list",
    "indelible bench plan cifar10-cpu",
    "indelible bench run smoke",
    "indelible bench run cifar10-cpu --workers 2     # run it again after a crash: it continues",
    "indelible bench run cifar10-paper --engine ray --address auto --gpus 0.5 --store s3://bucket/bench",
    "indelible bench run my-table.toml --only '*/content/app/*'",
    "indelible bench status cifar10-cpu",
    "indelible bench results cifar10-cpu --out results/cifar10-cpu.json",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible bench``."""
    made = options.add_actions(
        command,
        list=(_list, "list the presets"),
        plan=(_plan, "list the cells of a preset, what is done, and how long the rest takes"),
        run=(_run, "run the cells that are not done yet"),
        status=(_status, "show which cells are done, running or failed"),
        results=(_results, "write all records of a preset into one JSON file"),
    )
    planning, running, looking, exporting = (made[name] for name in ("plan", "run", "status", "results"))
    for action in (planning, running, looking, exporting):
        action.add_argument("preset", help="name of a preset, or path of a TOML file")
        action.add_argument("--store", default="bench", help="folder or URL of records and runs (default: bench)")
        action.add_argument("--data", help="use this data set instead of the preset's")
        action.add_argument("--only", metavar="PATTERN", help="only cells with such names: '*/content/app/*'")
    for action in (planning, running):
        action.add_argument("--workers", type=int, help="number of processes (default: one per GPU, or one per core)")
    running.add_argument("--threads", type=int, help="CPU threads per worker (default: cores / workers)")
    running.add_argument("--engine", default="local", help="local or ray (default: local)")
    running.add_argument("--address", help="address of a Ray cluster (default: start one here)")
    running.add_argument("--gpus", type=float, help="GPUs per cell on a Ray cluster, such as 0.5 (default: 0)")
    running.add_argument("--cpus", type=float, help="CPUs per cell on a Ray cluster (default: 1)")
    running.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")
    running.add_argument("--out", type=Path, help="also write the results to this JSON file")
    exporting.add_argument("--out", type=Path, help="file to write (default: standard output)")
    recorded = "all records of the preset, whatever their settings"
    exporting.add_argument("--as-recorded", action="store_true", help=recorded)
    options.common(*made.values())


def _list(arguments: argparse.Namespace) -> int:
    from indelible.bench.preset import load_preset, preset_names

    known = {name: load_preset(name).title for name in preset_names()}
    return emit(arguments, known, "\n".join(f"{name:22} {summary}" for name, summary in known.items()))


def _cells(arguments: argparse.Namespace) -> "tuple[BenchPreset, list[BenchCell], Store]":
    from indelible.bench.cells import data_digests, plan_cells, select
    from indelible.bench.preset import load_preset
    from indelible.bench.store import open_store

    preset = load_preset(arguments.preset)
    if arguments.data is not None:
        preset = replace(preset, data=arguments.data)
    cells = select(plan_cells(preset, data_digests(preset)), arguments.only)
    return preset, cells, open_store(arguments.store)


def _plan(arguments: argparse.Namespace) -> int:
    from indelible.bench.engines import LocalEngine
    from indelible.bench.estimate import estimate
    from indelible.report.format import duration

    like = LocalEngine(arguments.workers)
    preset, cells, store = _cells(arguments)
    finished = store.finished()
    records = [record for record in map(store.record, sorted(finished)) if record is not None]
    models = {cell.digest: cell for cell in cells if cell.needs is None}
    left = [cell for cell in cells if cell.digest not in finished]
    expected = estimate(left, models, records, threads=like.threads)
    times = {digest: duration(seconds) for digest, seconds in expected.seconds.items()}
    times |= dict.fromkeys(finished, "done")
    lines = [f"{times.get(cell.digest, 'unknown'):>12}  {cell.name}" for cell in cells]
    lines.append(f"{preset.title}: {len(cells)} cells, {len(cells) - len(left)} done")
    lines += _forecast(preset, expected, like.workers)
    document = {
        "preset": preset.name, "title": preset.title, "command": preset.command, "hours": expected.hours(like.workers),
        "workers": like.workers, "machines": list(expected.machines), "basis": expected.basis,
        "cells": [
            {
                **cell.to_json(), "done": cell.digest in finished, "seconds": expected.seconds.get(cell.digest),
                "unknown": expected.unknown.get(cell.digest),
            }
            for cell in cells
        ],
    }  # fmt: skip
    return emit(arguments, document, "\n".join(lines))


def _forecast(preset: "BenchPreset", expected: "Estimate", workers: int) -> list[str]:
    """Say how long the rest takes, on what kind of machine, and what is not known."""
    import torch

    from indelible.report.format import duration

    hours, known, unknown = expected.hours(workers), len(expected.seconds), len(expected.unknown)
    said = []
    if known and hours is not None:
        machines = " or ".join(expected.machines) or "the machine of the finished cells"
        what = "the rest takes" if not unknown else f"{known} of the {known + unknown} cells left take"
        time = duration(3600 * hours) if hours < 1 else f"{hours:.1f} hours"
        if hours >= 48:
            time = f"{hours:,.0f} hours ({hours / 24:,.0f} days)"
        said.append(f"{what} about {time} with {workers} worker{'s' if workers > 1 else ''}, each {machines}")
    said += [f"unknown for {count} cells: {why}" for why, count in Counter(expected.unknown.values()).items()]
    said += [f"speed of {network}: {why}" for network, why in expected.basis.items()]
    if said and preset.train_scale == "paper" and not torch.cuda.is_available():
        said.append(
            "training as in the paper needs a GPU, and this machine has none: run this command on the one that has it"
        )
    return said


def _run(arguments: argparse.Namespace) -> int:
    from indelible.base.files import write_json
    from indelible.bench.cell_records import collect_results, extra_fields
    from indelible.bench.cells import data_digests
    from indelible.bench.runner import Board, run_cells
    from indelible.cli.terminal import LiveBoard

    preset, cells, store = _cells(arguments)
    for name, digest in data_digests(preset).items():
        if digest is None:
            indelible.load(name)  # not here: the error says how to fetch it
    board = Board(cells)
    with LiveBoard(board, store, preset.title):
        run_cells(board, store, _engine(arguments), device=arguments.device, more=partial(extra_fields, preset))
    if arguments.out is not None:
        write_json(arguments.out, collect_results(preset, cells, store))
    failed = {cell.name: board.errors.get(cell.digest, "") for cell in cells if board.states[cell.digest] == "failed"}
    said = [f"{name} failed: {error}" for name, error in failed.items()]
    said.append(f"{board.count('done')} of {len(board.states)} cells are done; records are in {store.place}")
    summary = {"done": board.count("done"), "planned": len(board.states), "failed": failed, "store": store.place}
    return emit(arguments, summary, "\n".join(said), ok=board.count("done") == len(board.states))


def _engine(arguments: argparse.Namespace) -> "Engine":
    from indelible.bench.engines import LocalEngine, RayEngine

    if arguments.engine == "local":
        return LocalEngine(arguments.workers, arguments.threads)
    if arguments.engine == "ray":
        return RayEngine(arguments.address, gpus=arguments.gpus, cpus=arguments.cpus, threads=arguments.threads)
    raise UnknownNameError("engine", arguments.engine, ("local", "ray"))


def _status(arguments: argparse.Namespace) -> int:
    from indelible.bench.runner import Board
    from indelible.cli.terminal import board_table

    preset, cells, store = _cells(arguments)
    board = Board(cells)
    board.look(store)
    said = []
    for cell in cells:
        state = board.states[cell.digest]
        if state == "running":
            row = store.last_row(cell.digest)
            said.append(f"running: {cell.name}" + ("" if row is None else f", {row['phase']}, epoch {row['epoch']}"))
        elif state == "failed":
            said.append(f"failed: {cell.name}: {board.errors[cell.digest]}")
    said.append(f"{board.count('done')} of {len(cells)} cells of {preset.name} are done in {store.place}")
    states = {cell.name: board.states[cell.digest] for cell in cells}
    return emit(arguments, {"preset": preset.name, "states": states}, "\n".join(said), board_table(board, store))


def _results(arguments: argparse.Namespace) -> int:
    from indelible.base.files import write_json
    from indelible.bench.cell_records import collect_results

    preset, cells, store = _cells(arguments)
    document = collect_results(preset, None if arguments.as_recorded else cells, store)
    if arguments.out is None:
        print(json.dumps(document, indent=2, allow_nan=False))
        return 0
    write_json(arguments.out, document)
    return emit(arguments, {"out": str(arguments.out)}, f"{len(document['cells'])} records in {arguments.out}")
