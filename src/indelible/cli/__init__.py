"""The command line: ``commands.toml`` declares it, a file per command does the work.

A command's file has ``run(arguments)``, or ``run_ACTION(arguments)`` for its actions, such as ``bench plan``; it is
imported when the command is used.
Exit codes: 0 done; 1 a negative verdict or a failed check; 2 bad input, with a one-line cause and remedy; 130 Ctrl-C.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from indelible.base.errors import IndelibleError
from indelible.base.progress import silenced
from indelible.cli.command_line import command_names, command_table, parser
from indelible.cli.options import check_folders

__all__ = ["COMMANDS", "entry", "main", "parser"]

COMMANDS = command_names()
# As a shell reports a command that wrote to a closed pipe: 128 + SIGPIPE. Not 0, which is a positive verdict.
_CLOSED_PIPE = 141


def entry() -> int:
    """Run the command line as a program of its own, or give the shell its completions."""
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions, and argcomplete ends the process
        from indelible.base.imports import needed

        needed("argcomplete", extra="completion", what="completion").autocomplete(parser())
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if not (sys.argv[1:] if argv is None else argv):
        print(command_table()["guide"], end="")
        return 0
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as ended:  # argparse: 0 after --help, 2 after a bad option
        return int(ended.code or 0)
    try:
        with silenced(arguments.json or arguments.quiet):
            check_folders(arguments)
            listing = (arguments.command, arguments.action) == ("bench", "list")  # needs no torch, unlike the rest
            module = importlib.import_module(f"indelible.cli.{'known_names' if listing else arguments.command}")
            work = getattr(module, f"run_{arguments.action}".replace("-", "_"), None) or module.run
            code: int = work(arguments)
    except IndelibleError as error:
        print(f"indelible: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        said = "indelible: interrupted. Finished work is saved; run the same command again to continue."
        print(said, file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    return code
