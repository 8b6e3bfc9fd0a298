"""``indelible demo``: embed, attack, verify and report on data that ships with the package."""

import argparse
import time

from indelible.base.checks import check_interval
from indelible.bench.demo import run_demo
from indelible.cli.options import emit
from indelible.report import terminal_table, write_report
from indelible.train.run_folder import Run


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    check_interval("--seeds", arguments.seeds, "[1, inf)", 1)
    check_interval("--workers", arguments.workers, "[1, inf)", None)
    began = time.monotonic()
    folders = run_demo(arguments.out, seeds=range(arguments.seeds), workers=arguments.workers)
    page = write_report(folders, arguments.out / "report.html", title="Indelible demo")
    seconds = time.monotonic() - began
    runs = [Run.load(folder) for folder in folders]
    document = {
        "report": str(page),
        "seconds": seconds,
        "runs": [{"folder": str(run.folder), "record": run.record.to_json(), "verdict": run.verdict} for run in runs],
    }
    return emit(arguments, document, f"report: {page}  ({seconds:.0f} s)", terminal_table(folders))
