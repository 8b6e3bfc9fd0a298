"""``indelible report``: a page of some runs, or the paper's tables from its numbers and from those of the benchmark."""

import argparse
from pathlib import Path

from indelible.base.errors import InputError
from indelible.base.files import write_text
from indelible.bench.measurement import is_store, read_results
from indelible.cli.options import emit
from indelible.report import FORMATS, markdown_table, measured_tables, reported_tables, write_report, write_tables
from indelible.report.documents import TITLE


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    results = [path for path in arguments.runs if path.suffix == ".json" or is_store(path)]
    if arguments.reported is not None and arguments.runs:
        raise InputError("--reported shows the paper's own numbers; leave out the runs and results, or --reported.")
    if results and len(results) < len(arguments.runs):
        raise InputError("runs and results of the benchmark are different reports. Write one after the other.")
    out = arguments.out or Path(f"report{FORMATS[arguments.format]}")
    if results or arguments.reported is not None:
        found = [one for path in results for one in read_results(path)]
        grids = measured_tables(found) if results else reported_tables(arguments.reported)
        write_tables(grids, out, form=arguments.format, title=arguments.title)
    else:
        _write_runs(arguments, out)
    return emit(arguments, {"report": str(out)}, f"wrote {out}")


def _write_runs(arguments: argparse.Namespace, out: Path) -> None:
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
