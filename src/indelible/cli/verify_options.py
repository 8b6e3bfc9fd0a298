"""Options of ``indelible verify`` for the decision: the test, the number of queries, several verdicts at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import indelible
from indelible.base.errors import InputError
from indelible.cli.known_names import add_choice
from indelible.cli.options import emit

if TYPE_CHECKING:
    from indelible.data.images import Data
    from indelible.verification import SessionPlan


def deciding_options(command: argparse.ArgumentParser) -> None:
    """Add test, decoys, planner and family."""
    add = command.add_argument
    add_choice(
        command, "--test", default="auto",
        help="statistical test: auto (the one that fits the key), codebook, relearning (needs "
        "the weights), binomial, decoys, paired, sequential, keyed or references (default: auto)",
    )  # fmt: skip
    add("--decoys", type=int, metavar="N", help="number of decoy keys to ask (default: 20, or more if alpha needs it)")
    per_decoy = "samples of each decoy key (default: 1000; of a server: as planned)"
    add("--decoy-samples", type=int, metavar="N", help=per_decoy)
    answered = "for the plan: share of decoys that the suspect answers like the key (default: 0.2)"
    add("--decoy-rate", type=float, default=0.2, metavar="RATE", help=answered)
    family = "correct the p-value for the last verdict of this run too (Holm); repeatable"
    add("--family", type=Path, action="append", default=[], metavar="RUN", help=family)
    add("--plan", action="store_true", help="only print how many queries are needed; ask the suspect nothing")
    add("--table", action="store_true", help="with --plan: a Markdown table over WSR and classes")
    add(
        "--wsr", type=float, metavar="RATE",
        help="for the plan: the watermark success rate (WSR) to expect (default: 0.1 for a codebook; of a server: 0.7 "
        "for other keys, 0.5 for keyed labels)",
    )  # fmt: skip
    add("--power", type=float, default=0.99, help="for the plan: probability of a positive verdict (default: 0.99)")
    add("--classes", type=int, default=10, help="with --plan: number of classes (default: 10)")
    add("--marks", type=int, help="with --plan: marks of the codebook (default: 16; with two classes: 32)")
    wrong = "for the plan: share of a codebook's misses that are wrong classes (default: 0)"
    add("--wrong", type=float, default=0.0, metavar="SHARE", help=wrong)
    null = "with --plan: plan for a key with one mark or keyed labels that an unmarked model matches at this rate"
    add("--null-rate", type=float, metavar="RATE", help=null)


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
    arguments: argparse.Namespace, suspect: object, key: "indelible.Key", test: "Data",
    embedded: "indelible.WatermarkSamples | None",
) -> "SessionPlan | None":  # fmt: skip
    """Return the plan of a session with a server, or that of a query log; None for other suspects.

    A server is asked only as many queries as a verdict needs, unless ``--queries all`` is given.
    """
    from indelible.verification.planner import SessionPlan, session_plan
    from indelible.verification.procedures import procedure_for
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
    aim = {"alpha": arguments.alpha, "power": arguments.power}
    if arguments.null_rate is None:
        wsr, sequential = 0.1 if arguments.wsr is None else arguments.wsr, arguments.test == "sequential"
        book = codebook_plan(
            wsr, classes=arguments.classes, marks=arguments.marks, wrong=arguments.wrong, sequential=sequential, **aim
        )
        text = (
            f"{'at most ' if sequential else ''}{book.queries} queries: {book.marks} marks on {book.carriers} carriers "
            f"each. At a WSR of {100 * book.wsr:g} % and {book.classes} classes, p <= {book.alpha:g} is reached with "
            f"probability {book.power:.3f} (1,000 simulated models)."
        )
        return emit(arguments, book.to_json(), text)
    found = plan(0.5 if arguments.wsr is None else arguments.wsr, null_rate=arguments.null_rate, **aim)
    text = (
        f"{found.queries} queries: {found.hits} hits of them give p <= {found.alpha:g} at a null rate of "
        f"{found.null_rate:g}; at a WSR of {100 * found.wsr:g} % that is reached with probability {found.power:.3f}.\n"
        "With a fixed target the null rate is at least 0.5, and decoys come on top; with keyed labels 1/(classes - 1)."
    )
    return emit(arguments, found.to_json(), text)


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
    return emit(arguments, found, "\n".join(lines))


def in_family(verdict: "indelible.Verdict", others: Sequence[Path]) -> "indelible.Verdict":
    """Return ``verdict`` corrected together with the last verdicts of other runs."""
    from indelible.verification import corrected

    if not others:
        return verdict
    family = [verdict]
    for folder in others:
        found = indelible.Run.load(folder).verdict()
        if found is None:
            raise InputError(f"--family {folder} has no verdict yet. Run `indelible verify {folder}` first.")
        family.append(indelible.Verdict.from_json(found))
    return corrected(family)[0]
