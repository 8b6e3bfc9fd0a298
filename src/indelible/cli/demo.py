"""``indelible demo``: embed, attack, verify and report on data that ships with the package."""

import argparse
import time
from pathlib import Path

import indelible
from indelible.base.errors import InputError
from indelible.cli.options import common, emit

HELP = "embed, attack, verify and report on data that ships with the package (a few minutes)"
EXAMPLES = [
    "indelible demo",
    "indelible demo --out my-demo --seeds 3",
    "indelible demo                # run it again after Ctrl-C: it continues",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible demo``."""
    command.add_argument("--out", type=Path, default=Path("demo"), help="folder of the demo (default: demo)")
    command.add_argument("--seeds", type=int, default=1, help="number of seeds, each a complete demo (default: 1)")
    command.add_argument("--workers", type=int, help="number of processes, one thread each (default: one per core)")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.bench.demo import run_demo
    from indelible.report import terminal_table, write_report

    for option in ("seeds", "workers"):
        given = getattr(arguments, option)
        if given is not None and given < 1:
            raise InputError(f"--{option} must be at least 1, got {given}.")
    began = time.monotonic()
    folders = run_demo(arguments.out, seeds=range(arguments.seeds), workers=arguments.workers)
    page = write_report(folders, arguments.out / "report.html", title="Indelible demo")
    seconds = time.monotonic() - began
    runs = [indelible.Run.load(folder) for folder in folders]
    document = {
        "report": str(page),
        "seconds": seconds,
        "runs": [{"folder": str(run.folder), "record": run.record.to_json(), "verdict": run.verdict()} for run in runs],
    }
    return emit(arguments, document, f"report: {page}  ({seconds:.0f} s)", terminal_table(folders))
