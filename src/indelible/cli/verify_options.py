"""Options of ``indelible verify`` for the decision: the test, the number of queries, several verdicts at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.errors import InputError
from indelible.cli.known_names import add_choice
from indelible.cli.options import emit

if TYPE_CHECKING:
    from indelible.data.images import Data
    from indelible.keys import Key, WatermarkSamples
    from indelible.verification import SessionPlan, Verdict


def deciding_options(command: argparse.ArgumentParser) -> None:
    """Add test, decoys, planner and family."""
    add_choice(
        command, "--test", default="auto",
        help="statistical test: auto (the one that fits the key), codebook, binomial, decoys, paired, sequential, "
        "keyed or references (default: auto)",
    )  # fmt: skip
    command.add_argument(
        "--decoys", type=int, metavar="N", help="number of decoy keys to ask (default: 20, or more if alpha needs it)"
    )
    command.add_argument(
        "--decoy-samples", type=int, metavar="N",
        help="samples of each decoy key (default: 1000; of a server: as planned)",
    )  # fmt: skip
    command.add_argument(
        "--decoy-rate", type=float, default=0.2, metavar="RATE",
        help="for the plan: share of decoys that the suspect answers like the key (default: 0.2)",
    )  # fmt: skip
    command.add_argument(
        "--family", type=Path, action="append", default=[], metavar="RUN",
        help="correct the p-value for the last verdict of this run too (Holm); repeatable",
    )  # fmt: skip
    command.add_argument(
        "--plan", action="store_true", help="only print how many queries are needed; ask the suspect nothing"
    )
    command.add_argument("--table", action="store_true", help="with --plan: a Markdown table over WSR and classes")
    command.add_argument(
        "--wsr", type=float, metavar="RATE",
        help="for the plan: the watermark success rate (WSR) to expect (default: 0.1 for a codebook; of a server: 0.7 "
        "for other keys, 0.5 for keyed labels)",
    )  # fmt: skip
    command.add_argument(
        "--power", type=float, default=0.99, help="for the plan: probability of a positive verdict (default: 0.99)"
    )
    command.add_argument("--classes", type=int, default=10, help="with --plan: number of classes (default: 10)")
    command.add_argument(
        "--marks", type=int, help="with --plan: marks of the codebook (default: 16; with two classes: 32)"
    )
    command.add_argument(
        "--wrong", type=float, default=0.0, metavar="SHARE",
        help="for the plan: share of a codebook's misses that are wrong classes (default: 0)",
    )  # fmt: skip
    command.add_argument(
        "--null-rate", type=float, metavar="RATE",
        help="with --plan: plan for a key with one mark or keyed labels that an unmarked model matches at this rate",
    )  # fmt: skip


def decision(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of :func:`indelible.verify` that the options give."""
    return {
        "test": arguments.test, "alpha": arguments.alpha, "decoys": arguments.decoys,
        "queries": None if arguments.queries == "all" else arguments.queries, "decoy_samples": arguments.decoy_samples,
    }  # fmt: skip


def number_or_all(text: str) -> int | str:
    """Read the value of ``--queries``."""
    return text if text == "all" else int(text)


def planned_session(
    arguments: argparse.Namespace, suspect: object, key: "Key", test: "Data", embedded: "WatermarkSamples | None"
) -> "SessionPlan | None":
    """Return the plan of a session with a server, or that of a query log; None for other suspects.

    A server is asked only as many queries as a verdict needs, unless ``--queries all`` is given.
    """
    from indelible.verification.procedures import procedure_for
    from indelible.verification.session_plan import SessionPlan, session_plan
    from indelible.verification.suspect_queries import asked_samples
    from indelible.verification.suspects import HttpSuspect, PredictionFile

    if isinstance(suspect, PredictionFile) and isinstance(suspect.about.get("plan"), dict):
        found = SessionPlan.from_json(suspect.about["plan"])
        if (found.test, found.alpha) != (procedure_for(arguments.test, key).name, arguments.alpha):
            raise InputError(
                f"this query log was made with --test {found.test} --alpha {found.alpha:g}, got "
                f"--test {arguments.test} --alpha {arguments.alpha:g}. Use the options of the log."
            )
        return found
    if not isinstance(suspect, HttpSuspect) or arguments.queries == "all":
        return None
    return session_plan(
        key, len(asked_samples(key, test, embedded, None)), test=arguments.test, alpha=arguments.alpha,
        wsr=arguments.wsr, power=arguments.power, decoy_rate=arguments.decoy_rate, decoys=arguments.decoys,
        samples=arguments.queries, decoy_samples=arguments.decoy_samples, clean=len(test) if arguments.accuracy else 0,
        wrong=arguments.wrong,
    )  # fmt: skip


def show_plan(arguments: argparse.Namespace) -> int:
    """Print how many queries the wanted power needs."""
    from indelible.verification import codebook_plan, plan

    if arguments.table:
        return _show_table(arguments)
    if arguments.null_rate is None:
        wsr = 0.1 if arguments.wsr is None else arguments.wsr
        book = codebook_plan(
            wsr, classes=arguments.classes, marks=arguments.marks, alpha=arguments.alpha, power=arguments.power,
            wrong=arguments.wrong, sequential=arguments.test == "sequential",
        )  # fmt: skip
        most = "at most " if arguments.test == "sequential" else ""
        text = (
            f"{most}{book.queries} queries: {book.marks} marks on {book.carriers} carriers each. At a WSR of "
            f"{100 * book.wsr:g} % and {book.classes} classes, p <= {book.alpha:g} is reached with probability "
            f"{book.power:.3f} (1,000 simulated models)."
        )
        emit(arguments, book.to_json(), text)
        return 0
    found = plan(
        0.5 if arguments.wsr is None else arguments.wsr,
        alpha=arguments.alpha,
        power=arguments.power,
        null_rate=arguments.null_rate,
    )
    text = (
        f"{found.queries} queries: {found.hits} hits of them give p <= {found.alpha:g} at a null rate of "
        f"{found.null_rate:g}; at a WSR of {100 * found.wsr:g} % that is reached with probability {found.power:.3f}.\n"
        "With a fixed target the null rate is at least 0.5, and decoys come on top; with keyed labels 1/(classes - 1)."
    )
    emit(arguments, found.to_json(), text)
    return 0


def _show_table(arguments: argparse.Namespace) -> int:
    """Print the carriers per mark and the queries, by WSR and number of classes."""
    from indelible.verification import codebook_plan

    tasks = (2, 10, 100)
    lines = ["| WSR | " + " | ".join(f"{classes} classes" for classes in tasks) + " |", "|---" * (1 + len(tasks)) + "|"]
    found = []
    for wsr in (0.9, 0.7, 0.5, 0.3, 0.2, 0.1):
        row = [
            codebook_plan(wsr, classes=classes, alpha=arguments.alpha, power=arguments.power, wrong=arguments.wrong)
            for classes in tasks
        ]
        found += [one.to_json() for one in row]
        lines.append(f"| {wsr:g} | " + " | ".join(f"{one.carriers} ({one.queries})" for one in row) + " |")
    emit(arguments, found, "\n".join(lines))
    return 0


def in_family(verdict: "Verdict", others: Sequence[Path]) -> "Verdict":
    """Return ``verdict`` corrected together with the last verdicts of other runs."""
    from indelible.train.run_folder import Run
    from indelible.verification import Verdict, corrected

    if not others:
        return verdict
    family = [verdict]
    for folder in others:
        found = Run.load(folder).verdict()
        if found is None:
            raise InputError(f"--family {folder} has no verdict yet. Run `indelible verify {folder}` first.")
        family.append(Verdict.from_json(found))
    return corrected(family)[0]
