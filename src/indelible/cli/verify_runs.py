"""``indelible verify --runs``: a verdict for each of several runs, such as those of ``indelible attack --all``."""

import argparse
import glob
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.errors import InputError
from indelible.cli.options import emit

if TYPE_CHECKING:
    from rich.table import Table

    from indelible.train.run import Run

__all__ = ["found_runs", "verify_runs"]

_ALONE = ("run_folder", "suspect", "export", "certificate", "log", "family")


def found_runs(patterns: Sequence[str]) -> list[Path]:
    """Return the folders that are named, and of patterns those that hold a finished run; each once."""
    from indelible.train.run import Run

    found: dict[Path, None] = {}
    for pattern in patterns:
        if Path(pattern).exists() or not glob.has_magic(pattern):
            found[Path(pattern)] = None  # named: what is wrong with it is told when it is read
            continue
        matches = map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207 - Path.glob takes no absolute pattern
        found |= dict.fromkeys(folder for folder in matches if Run.finished(folder))
    if not found:
        raise InputError(f"--runs {' '.join(patterns)}: there is no finished run. Make one with `indelible attack`.")
    return list(found)


def verify_runs(arguments: argparse.Namespace, verify_one: Callable[[argparse.Namespace], int]) -> int:
    """Verify every run with the same options, keep each verdict in its folder, and print a table.

    Args:
        arguments: Of the command.
        verify_one: The command for one run.

    Returns:
        0 when every run is owned, 1 otherwise.
    """
    from rich.console import Console

    from indelible.bench.attack_suite import strongest
    from indelible.train.run import Run

    for name in _ALONE:
        if getattr(arguments, name):
            raise InputError(
                f"--runs verifies the models of runs: leave out {'RUN' if name == 'run_folder' else f'--{name}'}."
            )
    if not 0 <= arguments.ba_drop <= 100:
        raise InputError(f"--ba-drop is given in percentage points from 0 to 100, got {arguments.ba_drop}.")
    runs = []
    for folder in found_runs(arguments.runs):
        one = argparse.Namespace(**{**vars(arguments), "runs": [], "run_folder": folder})
        with redirect_stdout(io.StringIO()):  # each would print its own result; here they are the rows of one table
            verify_one(one)
        runs.append(Run.load(folder))
    verdicts = [run.verdict() or {} for run in runs]
    worst = strongest(runs, arguments.ba_drop / 100)
    if not arguments.json:
        Console().print(_table(runs, verdicts))
    said = "" if worst is None else f"strongest attack within {arguments.ba_drop:g} points: {worst.folder}"
    document = {
        "verdicts": [{"run": str(run.folder), **verdict} for run, verdict in zip(runs, verdicts, strict=True)],
        "strongest": None if worst is None else str(worst.folder),
    }
    emit(arguments, document, said)
    return 0 if all(verdict.get("owned") for verdict in verdicts) else 1


def _table(runs: "Sequence[Run]", verdicts: Sequence[Mapping[str, Any]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    from indelible.bench.making import HELD_OUT
    from indelible.report.format import p_value, percent

    drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    drawn.add_column("Run", overflow="fold")
    for title in ("Held-out BA", "BA", "WSR", "p", "Owned"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for run, verdict in zip(runs, verdicts, strict=True):
        held = run.record.metrics.get(HELD_OUT) or {}
        drawn.add_row(
            escape(run.folder.name), percent(held.get("after")), percent(verdict.get("ba")),
            percent(verdict.get("wsr")), p_value(verdict.get("p_value")), "yes" if verdict.get("owned") else "no",
        )  # fmt: skip
    return drawn
