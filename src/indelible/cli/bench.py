"""``indelible bench``: tables and figures by name, cell by cell."""

import argparse
from collections import Counter

import torch

from indelible.base.files import write_json
from indelible.bench.cell_records import collect_results, read_earlier
from indelible.bench.cells import BenchCell, data_digests, plan_cells, select
from indelible.bench.engines import LocalEngine, RayEngine
from indelible.bench.estimate import Estimate, estimate
from indelible.bench.preset import BenchPreset, load_preset
from indelible.bench.runner import Board, Engine, done_cells, run_cells
from indelible.bench.store import Store
from indelible.cli.options import emit
from indelible.cli.terminal import LiveBoard, board_table
from indelible.data.catalog import load
from indelible.report.format import duration


def _cells(arguments: argparse.Namespace) -> tuple[BenchPreset, list[BenchCell], Store]:
    preset = load_preset(arguments.preset)
    cells = select(plan_cells(preset, data_digests(preset)), arguments.only)
    earlier = [record for path in arguments.earlier for record in read_earlier(path)]
    return preset, cells, Store(arguments.store, earlier=earlier)


def run_plan(arguments: argparse.Namespace) -> int:
    """List the cells of a preset, what is done, and how long the rest takes."""
    like = LocalEngine(arguments.workers)
    preset, cells, store = _cells(arguments)
    finished = done_cells(cells, store)
    models = {cell.digest: cell for cell in cells if cell.needs is None}
    left = [cell for cell in cells if cell.digest not in finished]
    expected = estimate(left, models, store.records(), threads=like.threads)
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


def _forecast(preset: BenchPreset, expected: Estimate, workers: int) -> list[str]:
    """Say how long the rest takes, on what kind of machine, and what is not known."""
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


def run_run(arguments: argparse.Namespace) -> int:
    """Run the cells that are not done yet."""
    preset, cells, store = _cells(arguments)
    for name, digest in data_digests(preset).items():
        if digest is None:
            load(name)  # not here: the error says how to fetch it
    board = Board(cells)
    with LiveBoard(board, store, preset.title):
        run_cells(board, store, _engine(arguments), device=arguments.device)
    if arguments.out is not None:
        write_json(arguments.out, collect_results(preset, cells, store))
    failed = {cell.name: board.errors.get(cell.digest, "") for cell in cells if board.states[cell.digest] == "failed"}
    said = [f"{name} failed: {error}" for name, error in failed.items()]
    said.append(f"{board.count('done')} of {len(board.states)} cells are done; records are in {store.place}")
    summary = {"done": board.count("done"), "planned": len(board.states), "failed": failed, "store": store.place}
    return emit(arguments, summary, "\n".join(said), ok=board.count("done") == len(board.states))


def _engine(arguments: argparse.Namespace) -> Engine:
    if arguments.engine == "local":
        return LocalEngine(arguments.workers, arguments.threads)
    return RayEngine(arguments.address, gpus=arguments.gpus, cpus=arguments.cpus, threads=arguments.threads)


def run_status(arguments: argparse.Namespace) -> int:
    """Show which cells are done, running or failed."""
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


def run_results(arguments: argparse.Namespace) -> int:
    """Write the records of a preset into one JSON file; without a file, show them as a table."""
    preset, cells, store = _cells(arguments)
    document = collect_results(preset, cells, store)
    if arguments.out is None:
        board = Board(cells)
        board.look(store)
        text = f"{len(document['cells'])} records. --out FILE writes them, --json prints them."
        return emit(arguments, document, text, board_table(board, store))
    write_json(arguments.out, document)
    return emit(arguments, {"out": str(arguments.out)}, f"{len(document['cells'])} records in {arguments.out}")
