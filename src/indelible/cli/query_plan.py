"""How many queries a verdict needs: the plan of ``indelible verify --plan``, and that of a session with a server."""

import argparse

from indelible.base.errors import InputError
from indelible.cli.options import emit
from indelible.data.images import Data
from indelible.keys.key import Key
from indelible.verification import codebook_plan, plan
from indelible.verification.planner import CodebookPlan, session_plan
from indelible.verification.procedures import procedure_for
from indelible.verification.suspects import HttpSuspect, PredictionFile


def planned_session(arguments: argparse.Namespace, suspect: object, key: Key, test: Data) -> CodebookPlan | None:
    """Return the plan of a session with a server, or that of a query log; None for other suspects and keys.

    A server is asked only as many queries about a codebook as a verdict needs, unless ``--max-samples all`` is given.
    """
    if isinstance(suspect, PredictionFile) and isinstance(suspect.about.get("plan"), dict):
        found = CodebookPlan.from_json(suspect.about["plan"])
        if (found.test, found.alpha) != (procedure_for(arguments.procedure, key).name, arguments.alpha):
            raise InputError(
                f"this query log was made with --procedure {found.test} --alpha {found.alpha:g}, got "
                f"--procedure {arguments.procedure} --alpha {arguments.alpha:g}. Use the options of the log."
            )
        return found
    if not isinstance(suspect, HttpSuspect) or arguments.max_samples == "all" or key.labels != "codebook":
        return None
    return session_plan(
        key, len(key.samples(test, purpose="verify")), procedure=arguments.procedure, alpha=arguments.alpha,
        wsr=arguments.wsr, power=arguments.power, max_samples=arguments.max_samples,
        clean=len(test) if arguments.accuracy else 0, wrong=arguments.wrong,
    )  # fmt: skip


def show_plan(arguments: argparse.Namespace) -> int:
    """Print how many queries the wanted power needs."""
    if arguments.table:
        return _show_table(arguments)
    aim = {"alpha": arguments.alpha, "power": arguments.power}
    if arguments.null_rate is None:
        wsr, sequential = 0.1 if arguments.wsr is None else arguments.wsr, arguments.procedure == "sequential"
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
