"""``indelible report``: one page, or one Markdown table, from run folders."""

import argparse
from pathlib import Path

from indelible.cli.options import emit

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "write a self-contained report of some runs: outcome, table, pictures, curves, verdicts"
EXAMPLES = [
    "indelible report runs/app runs/app-ft",
    "indelible report demo/seed-0 --out report.html",
    "indelible report runs --title 'Our model and the suspect' --hide-samples",
    "indelible report runs --format markdown --out table.md",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible report``."""
    from indelible.cli import common

    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run, or a folder that contains runs")
    command.add_argument("--out", type=Path, help="file to write (default: report.html, or report.md)")
    command.add_argument("--title", help="heading of the page")
    command.add_argument("--hide-samples", action="store_true", help="no pictures: marked images give the marks away")
    command.add_argument("--format", choices=("html", "markdown"), default="html", help="html (default) or markdown")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.base.files import write_text
    from indelible.report import markdown_table, write_report
    from indelible.report.page import TITLE

    if arguments.format == "markdown":
        out = arguments.out or Path("report.md")
        write_text(out, markdown_table(arguments.runs))
    else:
        out = write_report(
            arguments.runs, arguments.out or Path("report.html"), title=arguments.title or TITLE,
            samples=not arguments.hide_samples,
        )  # fmt: skip
    emit(arguments, {"report": str(out)}, f"wrote {out}")
    return 0
