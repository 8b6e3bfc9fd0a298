"""``indelible report``: a page of some runs, or the paper's tables from its numbers and from those of the benchmark."""

import argparse
from pathlib import Path

from indelible.cli.options import emit

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "write a self-contained report: of some runs, or the paper's tables with measured beside reported"
EXAMPLES = [
    "indelible report runs/app runs/app-ft",
    "indelible report demo/seed-0 --out report.html",
    "indelible report runs --title 'Our model and the suspect' --hide-samples",
    "indelible report runs --analysis analysis         # with the figures of indelible analyze",
    "indelible report runs --format markdown --out table.md",
    "indelible report --reported",
    "indelible report --reported cifar10 ablation-components --format latex --out tables.tex",
    "indelible report results/cifar10-cpu.json --out tables.html",
    "indelible report bench     # a store, at any time: what is finished so far",
]
_ENDINGS = {"html": ".html", "markdown": ".md", "latex": ".tex", "csv": ".csv"}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible report``."""
    from indelible.cli import common

    command.add_argument(
        "runs", type=Path, nargs="*", metavar="WHAT",
        help="runs, folders that contain runs, or results of the benchmark: a .json file or a store",
    )  # fmt: skip
    command.add_argument(
        "--reported", nargs="*", metavar="TABLE",
        help="the paper's tables from its own numbers: names, all, or nothing for the three main ones",
    )  # fmt: skip
    command.add_argument("--out", type=Path, help="file to write (default: report.html, .md, .tex or .csv)")
    command.add_argument("--title", help="heading of the page")
    command.add_argument(
        "--analysis", type=Path, action="append", default=[], metavar="FOLDER",
        help="show these analyses too, or all inside the folder; those among the runs are shown in any case",
    )  # fmt: skip
    command.add_argument("--hide-samples", action="store_true", help="no pictures: marked images give the marks away")
    command.add_argument(
        "--format", choices=tuple(_ENDINGS), default="html", help="html (default), markdown, latex, csv"
    )
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.base.errors import InputError
    from indelible.report.paper.observations import is_store

    results = [path for path in arguments.runs if path.suffix == ".json" or is_store(path)]
    if arguments.reported is not None and arguments.runs:
        raise InputError("--reported shows the paper's own numbers; leave out the runs and results, or --reported.")
    if results and len(results) < len(arguments.runs):
        raise InputError("runs and results of the benchmark are different reports. Write one after the other.")
    out = arguments.out or Path(f"report{_ENDINGS[arguments.format]}")
    paths = _tables(arguments, results, out) if results or arguments.reported is not None else _runs(arguments, out)
    shown = {"report": str(paths[0])} if len(paths) == 1 else {"reports": [str(path) for path in paths]}
    emit(arguments, shown, "\n".join(f"wrote {path}" for path in paths))
    return 0


def _tables(arguments: argparse.Namespace, results: list[Path], out: Path) -> list[Path]:
    from indelible.report.paper import MAIN, measured_tables, reported_tables, write_tables
    from indelible.report.paper.observations import read_results

    if results:
        grids = measured_tables([one for path in results for one in read_results(path)])
    else:
        grids = reported_tables(arguments.reported or MAIN)
    return write_tables(grids, out, form=arguments.format, title=arguments.title)


def _runs(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from indelible.base.errors import InputError
    from indelible.base.files import write_text
    from indelible.report import markdown_table, write_report
    from indelible.report.page import TITLE

    if not arguments.runs:
        raise InputError("name runs or results of the benchmark, or ask for the paper's tables with --reported.")
    if arguments.format == "markdown":
        write_text(out, markdown_table(arguments.runs))
        return [out]
    if arguments.format != "html":
        raise InputError(f"a report of runs is html or markdown, not {arguments.format}. Tables can be all four.")
    page = write_report(
        arguments.runs, out, title=arguments.title or TITLE, samples=not arguments.hide_samples,
        analyses=arguments.analysis,
    )  # fmt: skip
    return [page]
