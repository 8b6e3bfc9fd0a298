"""The command line: one file per command, each with ``HELP``, ``EXAMPLES``, ``configure(parser)`` and ``run(args)``.

Exit codes: 0 done; 1 a negative verdict or a failed check; 2 bad input, with a one-line cause and remedy; 130 Ctrl-C.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from indelible.base.allocator import keep_freed_memory
from indelible.base.errors import IndelibleError
from indelible.base.progress import silenced

__all__ = ["COMMANDS", "entry", "main"]

COMMANDS = ("demo", "data", "key", "embed", "attack", "verify", "serve", "evidence", "report", "bench", "analyze")
_TRAINING = {"demo", "embed", "attack", "bench", "analyze"}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all others."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse declares NoReturn; exit never returns
        self.exit(2, f"indelible: error: {message}. See '{self.prog} --help'.\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from indelible import __version__

    top = _Parser(
        prog="indelible",
        description="Ownership watermarks for neural networks: embed, attack, verify, report.",
        epilog="Start with:  indelible demo",
    )
    top.add_argument("--version", action="version", version=f"indelible {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"indelible.cli.{name}")
        lines = "\n".join(f"  {line}" for line in module.EXAMPLES)
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
        command.set_defaults(run=module.run)
    return top


def common(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text for people")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")


def entry() -> int:
    """Run the command line in a process of its own, whose memory is ours to manage; :func:`main` is for any process."""
    if _TRAINING.intersection(sys.argv[1:2]):
        keep_freed_memory()
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = parser().parse_args(argv)
    quiet = getattr(arguments, "json", False) or getattr(arguments, "quiet", False)
    try:
        with silenced(quiet):
            code: int = arguments.run(arguments)
    except IndelibleError as error:
        message = " ".join(str(error).split())
        print(f"indelible: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("indelible: interrupted; what was finished is on disk, run the same command to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
