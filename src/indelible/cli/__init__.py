"""The command line: one file per command, each with ``HELP``, ``EXAMPLES``, ``configure(parser)`` and ``run(args)``.

A command with actions, such as ``bench plan``, has a function for each of them in place of ``run``.
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
from indelible.cli.options import explained

__all__ = ["COMMANDS", "entry", "main", "parser"]

COMMANDS = ("demo", "data", "key", "embed", "attack", "verify", "evidence", "report", "bench", "analyze", "doctor")
_TRAINING = {"demo", "embed", "attack", "bench", "analyze"}


_GUIDE = """\
Indelible puts an ownership watermark into a neural network, attacks it as a thief would, and proves with a stated error
rate that a model is yours.

Five commands, in this order:

  indelible demo                              everything below on built-in data, in a few minutes
  indelible embed --out runs/app              train a small network with a watermark; add --data and --model for yours
  indelible attack runs/app                   try to remove the watermark
  indelible verify runs/app-ft                is the attacked model still provably yours? (exit code 0: yes, 1: no)
  indelible report runs --out report.html     write all results on one page

  To check the installation: indelible doctor
More: indelible --help lists all commands, indelible COMMAND --help explains one with examples.
Documentation: README.md and the folder docs/ of the source code; `make docs` builds the pages.
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all others."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse declares NoReturn; exit never returns
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"indelible: error: {message}{end} See '{self.prog} --help'.\n")


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
        command = commands.add_parser(name, **explained(module.HELP, module.EXAMPLES))
        command.set_defaults(run=getattr(module, "run", None))
        module.configure(command)
    return top


def entry() -> int:
    """Run the command line in a process of its own, whose memory is ours to manage; :func:`main` is for any process."""
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions, and argcomplete ends the process
        from indelible.base.imports import needed

        needed("argcomplete", extra="completion", what="completion").autocomplete(parser())
    if _TRAINING.intersection(sys.argv[1:2]):
        keep_freed_memory()
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if not (sys.argv[1:] if argv is None else argv):
        print(_GUIDE, end="")
        return 0
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as ended:  # argparse: 0 after --help, 2 after a bad option
        return int(ended.code or 0)
    quiet = getattr(arguments, "json", False) or getattr(arguments, "quiet", False)
    try:
        with silenced(quiet):
            code: int = arguments.run(arguments)
    except IndelibleError as error:
        print(f"indelible: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        said = "indelible: interrupted. Finished work is saved; run the same command again to continue."
        print(said, file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
