"""Share what every experiment's command has: options, errors in one line, the result as text or as JSON."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from indelible.base.errors import IndelibleError
from indelible.base.files import write_json
from indelible.base.progress import silenced
from indelible.base.records import plain
from indelible.cli.options import emit
from indelible.train.devices import pinned_threads

__all__ = ["Finding", "command", "guarded", "program"]

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an experiment found.

    Attributes:
        record: The whole result, JSON-able; written to ``--out``.
        lines: What is printed for people.
        holds: Whether what the experiment checks is true; decides the exit code.
    """

    record: Any
    lines: Sequence[str]
    holds: bool = True


def command(about: str | None, *, record: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the options that experiments share.

    Args:
        about: The module's docstring, which is the help.
        record: Whether there is a result to write.
    """
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.set_defaults(out=None)
    if record:
        options.add_argument("--out", type=Path, metavar="FILE", help="also write the whole result there as JSON")
    options.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    options.add_argument("--json", action="store_true", help="print the whole result as JSON instead of text")
    options.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return options


def guarded(arguments: argparse.Namespace, work: Callable[[argparse.Namespace], Finding | None]) -> int:
    """Do the work, write and print what it found (None: it has done that itself); return the exit code.

    Exit codes are those of the package's commands: 0 done, 1 something checked is not true, 2 bad input, 130 Ctrl-C.
    """
    try:
        with silenced(arguments.json or arguments.quiet), pinned_threads(arguments.threads):
            found = work(arguments)
            if found is not None and arguments.out is not None:
                write_json(arguments.out, plain(found.record))
    except IndelibleError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, run the same command to go on", file=sys.stderr)
        return INTERRUPTED
    if found is None:
        return 0
    emit(arguments, plain(found.record), "\n".join(found.lines))
    return 0 if found.holds else 1


def program(main: Callable[[], int]) -> NoReturn:
    """Run a command as a program of its own."""
    sys.exit(main())
