"""Options of ``indelible verify`` about the decision: which test, how many queries, several verdicts at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.errors import InputError
from indelible.cli.options import emit

if TYPE_CHECKING:
    from indelible.verify import Verdict

__all__ = ["deciding_options", "decision", "in_family", "show_plan"]


def deciding_options(command: argparse.ArgumentParser) -> None:
    """Add test, decoys, planner and family."""
    command.add_argument(
        "--test", default="auto",
        help="auto, binomial, decoys, paired, sequential, keyed or references (default: auto)",
    )  # fmt: skip
    command.add_argument("--decoys", type=int, metavar="N", help="decoy keys to ask (default: 20, or what alpha takes)")
    command.add_argument(
        "--family", type=Path, action="append", default=[], metavar="RUN",
        help="correct for this run's last verdict as well (Holm); may be repeated",
    )  # fmt: skip
    command.add_argument("--plan", action="store_true", help="only say how many queries are needed, and ask none")
    command.add_argument("--wsr", type=float, default=0.5, help="success rate to plan for (default: 0.5)")
    command.add_argument("--power", type=float, default=0.99, help="wanted chance of a verdict (default: 0.99)")
    command.add_argument("--null-rate", type=float, default=0.1, help="chance of a hit by accident (default: 0.1)")


def decision(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say to :func:`indelible.verify`."""
    return {
        "test": arguments.test, "alpha": arguments.alpha, "queries": arguments.queries, "decoys": arguments.decoys
    }  # fmt: skip


def show_plan(arguments: argparse.Namespace) -> int:
    """Print how many queries the wanted power takes."""
    from indelible.verify import plan

    found = plan(arguments.wsr, alpha=arguments.alpha, power=arguments.power, null_rate=arguments.null_rate)
    text = (
        f"{found.queries} queries: {found.hits} hits of them give p <= {found.alpha:g} at a null rate of "
        f"{found.null_rate:g}; at a WSR of {100 * found.wsr:g} % that is reached with probability {found.power:.3f}.\n"
        "With a fixed target the null rate is at least 0.5, and decoys come on top; with keyed labels 1/(classes - 1)."
    )
    emit(arguments, found.to_json(), text)
    return 0


def in_family(verdict: "Verdict", others: Sequence[Path]) -> "Verdict":
    """Return ``verdict`` corrected together with the last verdicts of other runs."""
    from indelible.train.run import Run
    from indelible.verify import Verdict, corrected

    if not others:
        return verdict
    family = [verdict]
    for folder in others:
        found = Run.load(folder).verdict()
        if found is None:
            raise InputError(f"{folder} has no verdict yet: run `indelible verify {folder}` first.")
        family.append(Verdict.from_json(found))
    return corrected(family)[0]
