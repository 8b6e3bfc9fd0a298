"""``indelible report``: a page of some runs, or the paper's tables from its numbers and from those of the benchmark."""

import argparse
from pathlib import Path

from indelible.base.errors import InputError
from indelible.cli.options import accuracy_budget, common, emit

HELP = "write a report on one page: of runs, or the paper's tables with measured beside reported numbers"
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
_ENDINGS = {"html": ".html", "markdown": ".md", "latex": ".tex"}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible report``."""
    add = command.add_argument
    what = "runs, folders that contain runs, or results of the benchmark: a .json file or a store"
    add("runs", type=Path, nargs="*", metavar="WHAT", help=what)
    reported = "the paper's tables from its own numbers: names, all, or nothing for the three main ones"
    add("--reported", nargs="*", metavar="TABLE", help=reported)
    add("--out", type=Path, help="file to write (default: report.html, .md or .tex)")
    add("--title", help="heading of the page")
    add(
        "--analysis", type=Path, action="append", default=[], metavar="FOLDER",
        help="show these analyses too, or all inside the folder; those among the runs are shown in any case",
    )  # fmt: skip
    add("--hide-samples", action="store_true", help="leave out pictures, which reveal the marks")
    accuracy_budget(
        command, "accuracy that the strongest attack on a model may have cost, in percentage points", default=0.02
    )
    add("--format", choices=tuple(_ENDINGS), default="html", help="html (default), markdown, latex")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.bench.measurement import is_store

    results = [path for path in arguments.runs if path.suffix == ".json" or is_store(path)]
    if arguments.reported is not None and arguments.runs:
        raise InputError("--reported shows the paper's own numbers; leave out the runs and results, or --reported.")
    if results and len(results) < len(arguments.runs):
        raise InputError("runs and results of the benchmark are different reports. Write one after the other.")
    out = arguments.out or Path(f"report{_ENDINGS[arguments.format]}")
    if results or arguments.reported is not None:
        _write_tables(arguments, results, out)
    else:
        _write_runs(arguments, out)
    return emit(arguments, {"report": str(out)}, f"wrote {out}")


def _write_tables(arguments: argparse.Namespace, results: list[Path], out: Path) -> None:
    from indelible.bench.measurement import read_results
    from indelible.report import measured_tables, reported_tables, write_tables

    if results:
        grids = measured_tables([one for path in results for one in read_results(path)])
    else:
        grids = reported_tables(arguments.reported)
    write_tables(grids, out, form=arguments.format, title=arguments.title)


def _write_runs(arguments: argparse.Namespace, out: Path) -> None:
    from indelible.base.files import write_text
    from indelible.report import markdown_table, write_report
    from indelible.report.run_page import TITLE

    if not arguments.runs:
        raise InputError("name runs or results of the benchmark, or ask for the paper's tables with --reported.")
    if arguments.format == "markdown":
        write_text(out, markdown_table(arguments.runs))
        return
    if arguments.format != "html":
        raise InputError(f"a report of runs is html or markdown, not {arguments.format}. Tables can be all three.")
    write_report(
        arguments.runs, out, title=arguments.title or TITLE, samples=not arguments.hide_samples,
        analyses=arguments.analysis, ba_drop=arguments.ba_drop,
    )  # fmt: skip
