"""``indelible bench``: tables and figures by name, cell by cell; and measurements of one kind."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.cli.measuring import VERDICTS, measure_verdicts, measuring_options
from indelible.cli.options import emit
from indelible.cli.timing import SPEED, check_speed_again, measure_speed, speed_options

if TYPE_CHECKING:
    from indelible.bench.cells import Cell
    from indelible.bench.engines import Engine
    from indelible.bench.estimate import Estimate
    from indelible.bench.preset import Preset
    from indelible.bench.store import Locking, Store

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "run a table or figure: methods x kinds x attacks x seeds, resumable, on all cores or a cluster"
EXAMPLES = [
    "indelible bench list",
    "indelible bench plan cifar10-cpu",
    "indelible bench run smoke",
    "indelible bench run cifar10-cpu --workers 2     # again, after a crash: goes on where it was",
    "indelible bench run cifar10-paper --engine ray --address auto --gpus 0.5 --store s3://bucket/bench",
    "indelible bench run my-table.toml --only '*/content/app/*'",
    "indelible bench status cifar10-cpu",
    "indelible bench results cifar10-cpu --out results/cifar10-cpu.json",
    "indelible bench run speed --parts app,memory --networks resnet-mini --rounds 3",
    "indelible bench check speed --parts app --networks resnet-mini",
    "indelible bench run calibration --out calibration.json",
    "indelible bench run null-models --models 60",
    "indelible bench run ambiguity --out ambiguity.json",
]
MEASUREMENTS = {SPEED: "what each method, attack and verdict costs beside a plain step", **VERDICTS}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible bench``."""
    from indelible.cli import common

    actions = command.add_subparsers(dest="action", required=True, metavar="list|plan|run|check|status|results")
    listing = actions.add_parser("list", help="presets and measurements")
    planning = actions.add_parser("plan", help="the cells of a preset, what is done, and how long the rest takes")
    running = actions.add_parser("run", help="do what is not done yet")
    checking = actions.add_parser("check", help="measure speed and compare with committed ratios")
    looking = actions.add_parser("status", help="what is done, under way, failed")
    exporting = actions.add_parser("results", help="all records of a preset in one JSON file")
    for action in (planning, running, looking, exporting):
        action.add_argument("preset", help="name of a preset, or path of a TOML file")
        action.add_argument("--store", default="bench", help="folder or URL of records and runs (default: bench)")
        action.add_argument("--data", help="use this data set instead of the preset's")
        action.add_argument("--only", metavar="PATTERN", help="cells whose names match, such as '*/content/app/*'")
    for action in (planning, running):
        action.add_argument("--workers", type=int, help="processes (default: one a GPU, or one a core)")
    running.add_argument("--threads", type=int, help="CPU threads of each worker (default: the cores, shared out)")
    running.add_argument("--engine", default="local", help="local or ray (default: local)")
    running.add_argument("--address", help="address of a Ray cluster (default: start one here)")
    running.add_argument("--gpus", type=float, help="GPUs a cell takes on a Ray cluster, such as 0.5 (default: 0)")
    running.add_argument("--cpus", type=float, help="CPUs a cell takes on a Ray cluster (default: 1)")
    running.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")
    running.add_argument("--out", type=Path, help="also write the results there as JSON")
    speed_options(running, checking)
    measuring_options(running)
    exporting.add_argument("--out", type=Path, help="the file (default: standard output)")
    exporting.add_argument(
        "--as-recorded", action="store_true", help="all that was recorded for the preset, under whatever settings"
    )
    for action in (listing, planning, running, checking, looking, exporting):
        common(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "list":
        return _list(arguments)
    if arguments.action == "run" and arguments.preset in VERDICTS:
        return measure_verdicts(arguments)
    if arguments.action == "run" and arguments.preset == SPEED:
        return measure_speed(arguments)
    if arguments.action == "check":
        return check_speed_again(arguments)
    actions = {"plan": _plan, "run": _run, "status": _status, "results": _results}
    return actions[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from indelible.bench.preset import load_preset, preset_names

    known = {name: load_preset(name).title for name in preset_names()} | MEASUREMENTS
    emit(arguments, known, "\n".join(f"{name:22} {summary}" for name, summary in known.items()))
    return 0


def _cells(arguments: argparse.Namespace) -> "tuple[Preset, list[Cell], Store]":
    from dataclasses import replace

    from indelible.base.errors import UnknownNameError
    from indelible.bench.cells import data_digests, plan_cells, select
    from indelible.bench.preset import load_preset, preset_names
    from indelible.bench.store import open_store

    if not arguments.preset.endswith(".toml") and arguments.preset not in preset_names():
        raise UnknownNameError("preset", arguments.preset, [*preset_names(), *MEASUREMENTS])
    preset = load_preset(arguments.preset)
    if arguments.data is not None:
        preset = replace(preset, data=arguments.data)
    cells = select(plan_cells(preset, data_digests(preset)), arguments.only)
    return preset, cells, open_store(arguments.store, locking=_locking(arguments))


def _plan(arguments: argparse.Namespace) -> int:
    from indelible.bench.engines.local import LocalEngine
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
    emit(arguments, document, "\n".join(lines))
    return 0


def _forecast(preset: "Preset", expected: "Estimate", workers: int) -> list[str]:
    """Say how long the rest takes, on what kind of machine, and what is not known."""
    from collections import Counter

    import torch

    hours, known, unknown = expected.hours(workers), len(expected.seconds), len(expected.unknown)
    said = []
    if known and hours is not None:
        machines = " or ".join(expected.machines) or "the machine of the finished cells"
        what = "the rest takes" if not unknown else f"{known} of the {known + unknown} cells left take"
        said.append(f"{what} about {_hours(hours)} with {workers} worker{'s' if workers > 1 else ''}, each {machines}")
    said += [f"unknown for {count} cells: {why}" for why, count in Counter(expected.unknown.values()).items()]
    said += [f"speed of {network}: {why}" for network, why in expected.basis.items()]
    if said and preset.train_preset == "paper" and not torch.cuda.is_available():
        said.append(
            "training as in the paper is meant for a GPU, and there is none here: plan it on the machine that has"
        )
    return said


def _hours(hours: float) -> str:
    from indelible.report.format import duration

    if hours < 1:
        return duration(3600 * hours)
    return f"{hours:.1f} hours" if hours < 48 else f"{hours:,.0f} hours ({hours / 24:,.0f} days)"


def _run(arguments: argparse.Namespace) -> int:
    from functools import partial

    from indelible.base.files import write_json
    from indelible.bench.results import collect_results, extra_fields
    from indelible.bench.runner import Board, run_cells
    from indelible.cli.live import LiveBoard

    preset, cells, store = _cells(arguments)
    _check_data(preset)
    board = Board(cells)
    with LiveBoard(board, store, preset.title):
        run_cells(
            board, store, _engine(arguments), device=arguments.device, locking=_locking(arguments),
            more=partial(extra_fields, preset),
        )  # fmt: skip
    if arguments.out is not None:
        write_json(arguments.out, collect_results(preset, cells, store))
    failed = {cell.name: board.errors.get(cell.digest, "") for cell in cells if board.states[cell.digest] == "failed"}
    said = [f"{name} failed: {error}" for name, error in failed.items()]
    said.append(f"{board.count('done')} of {len(board.states)} cells are done; records are in {store.place}")
    summary = {"done": board.count("done"), "planned": len(board.states), "failed": failed, "store": store.place}
    emit(arguments, summary, "\n".join(said))
    return 1 if board.count("done") < len(board.states) else 0


def _check_data(preset: "Preset") -> None:
    """Refuse to start when a data set is not there; the error says how to fetch it."""
    from indelible.bench.cells import data_digests
    from indelible.data.catalog import load

    for name, digest in data_digests(preset).items():
        if digest is None:
            load(name)


def _locking(arguments: argparse.Namespace) -> "Locking":
    """Machines of a cluster share no kernel that would know of a dead owner."""
    return "lease" if getattr(arguments, "engine", "") == "ray" else "auto"


def _engine(arguments: argparse.Namespace) -> "Engine":
    from indelible.base.errors import UnknownNameError
    from indelible.bench.engines.local import LocalEngine

    if arguments.engine == "local":
        return LocalEngine(arguments.workers, arguments.threads)
    if arguments.engine == "ray":
        from indelible.bench.engines.ray import RayEngine

        return RayEngine(arguments.address, gpus=arguments.gpus, cpus=arguments.cpus, threads=arguments.threads)
    raise UnknownNameError("engine", arguments.engine, ("local", "ray"))


def _status(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from indelible.bench.runner import State
    from indelible.cli.live import board_table

    preset, cells, store = _cells(arguments)
    records = {cell.digest: record for cell in cells if (record := store.record(cell.digest)) is not None}
    states: dict[str, State] = {}
    said, under_way = [], {}
    for cell in cells:
        if cell.digest in records:
            states[cell.digest] = "done"
        elif store.held(cell.digest):
            states[cell.digest] = "running"
            row = store.last_row(cell.digest)
            under_way[cell.digest] = "…" if row is None else f"… {row['epoch']}"
            said.append(f"under way: {cell.name}" + ("" if row is None else f", {row['phase']}, epoch {row['epoch']}"))
        elif (failure := store.failure(cell.digest)) is not None:
            states[cell.digest] = "failed"
            said.append(f"failed: {cell.name}: {failure['error']}")
        else:
            states[cell.digest] = "waiting"
    if not arguments.json:
        Console().print(board_table(cells, states, records, under_way))
    said.append(f"{len(records)} of {len(states)} cells of {preset.name} are done in {store.place}")
    emit(
        arguments,
        {"preset": preset.name, "states": {cell.name: states[cell.digest] for cell in cells}},
        "\n".join(said),
    )
    return 0


def _results(arguments: argparse.Namespace) -> int:
    import json

    from indelible.base.files import write_json
    from indelible.bench.results import collect_results, recorded_results

    preset, cells, store = _cells(arguments)
    document = recorded_results(preset, store) if arguments.as_recorded else collect_results(preset, cells, store)
    if arguments.out is None:
        print(json.dumps(document, indent=2, allow_nan=False))
        return 0
    write_json(arguments.out, document)
    emit(arguments, {"out": str(arguments.out)}, f"{len(document['cells'])} records in {arguments.out}")
    return 0
