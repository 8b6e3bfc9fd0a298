"""Measure what each method, attack and verdict costs beside a plain step of training, side by side, as ratios.

    python experiments/speed.py --out results/speed.json --table speed.md
    python experiments/speed.py --parts app,memory --networks resnet-mini --rounds 3
    python experiments/speed.py --check --parts app --networks resnet-mini --again

Finished rounds are kept: the same command goes on where it was broken off. --check compares with committed ratios and
exits with 1 when one is exceeded. What is measured and how: docs/speed.md.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from command import Finding, command, guarded, program
from indelible.base.files import read_json, write_text
from speed_suite.check import check_speed
from speed_suite.document import rows_of_document, speed_document, speed_table
from speed_suite.other_work import pass_device
from speed_suite.rounds import NETWORKS, PARTS, choose_units, measure_units

__all__ = ["main"]

BASELINE = Path("results") / "speed.json"


def _entries(arguments: argparse.Namespace) -> list[Mapping[str, Any]]:
    units = choose_units(
        _words(arguments.parts, PARTS), _words(arguments.networks, NETWORKS), batch_size=arguments.batch_size,
        rounds=arguments.rounds, device=pass_device(arguments.device),
    )  # fmt: skip
    return measure_units(units, arguments.folder, again=arguments.again)


def _words(said: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    return default if said is None else tuple(word.strip() for word in said.split(",") if word.strip())


def _command(arguments: argparse.Namespace) -> str:
    given = {name: getattr(arguments, name) for name in ("parts", "networks", "threads")}
    words = [f"--{name} {value}" for name, value in given.items() if value is not None]
    sizes = f"--batch-size {arguments.batch_size} --rounds {arguments.rounds}"
    return " ".join(["python experiments/speed.py", *words, sizes])


def _measure(arguments: argparse.Namespace) -> Finding:
    entries = _entries(arguments)
    table = speed_table(entries)
    if arguments.table is not None:
        write_text(arguments.table, table + "\n")
    return Finding(record=speed_document(entries, _command(arguments)), lines=[table])


def _check(arguments: argparse.Namespace) -> Finding:
    baseline = rows_of_document(read_json(arguments.baseline))
    rows = rows_of_document(speed_document(_entries(arguments), _command(arguments)))
    compared = check_speed(rows, baseline, tolerance=arguments.tolerance)
    within = sum(one.holds for one in compared)
    record = {
        "holds": within == len(compared),
        "findings": [
            {"row": list(one.row.name), "ratio": one.row.ratio, "allowed": one.allowed, "why": one.why,
             "holds": one.holds}
            for one in compared
        ],
    }  # fmt: skip
    lines = [one.sentence() for one in compared]
    lines.append(f"{within} of {len(compared)} ratios are within what is allowed")
    return Finding(record=record, lines=lines, holds=bool(compared) and within == len(compared))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; with --check, exit code 1 if a ratio is higher than its baseline or a promise allows."""
    options = command(__doc__)
    options.add_argument("--parts", help="some of app,methods,memory,attacks,verify,grid (default: all)")
    options.add_argument("--networks", help="networks, the CPU's last (default: resnet-18,resnet-mini)")
    options.add_argument("--batch-size", type=int, default=128, help="images in a plain step (default: 128)")
    options.add_argument(
        "--rounds",
        type=int,
        default=7,
        help="how often each case is timed; six or more give a confidence interval (default: 7)",
    )
    options.add_argument("--again", action="store_true", help="forget the rounds measured before")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    options.add_argument(
        "--folder", type=Path, default=Path("bench/speed"), help="the measured rounds (default: bench/speed)"
    )
    options.add_argument("--table", type=Path, metavar="FILE", help="also write the tables there as Markdown")
    options.add_argument("--check", action="store_true", help="compare with the committed ratios of --baseline")
    options.add_argument("--baseline", type=Path, default=BASELINE, help=f"committed ratios (default: {BASELINE})")
    options.add_argument("--tolerance", type=float, help="share that a ratio may exceed its baseline by")
    arguments = options.parse_args(argv)
    return guarded(arguments, _check if arguments.check else _measure)


if __name__ == "__main__":
    program(main)
