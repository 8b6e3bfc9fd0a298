"""Write docs/commands.md from the parsers of the command line: after a command, an option or an example has changed.

Run it: python tools/write_commands_page.py            (--check: change nothing, exit 1 when the page is out of date)
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from indelible.cli import parser

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
INTRO = """\
# Commands

Every command takes `--help`. Exit codes: 0 done; 1 a negative verdict or a failed check; 2 bad input, with the cause
and what to do in one line; 130 stopped with Ctrl-C; 141 the reader of a
pipe closed it before the end. This page is written from the parsers (`python
tools/write_commands_page.py`).

## Completion in the shell

Completion of commands, options and names in bash, zsh and fish: `pip install 'indelible[completion]'`, then put
`eval "$(register-python-argcomplete indelible)"` into your shell's start-up file. `indelible doctor` says whether it is
installed.
"""


def sections(found: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    actions = found._actions  # noqa: SLF001 - argparse has no public way to list its options
    commands = next((one.choices for one in actions if isinstance(one.choices, dict)), None)
    if depth > 1:
        yield f"{'#' * depth} `{found.prog}`"
        yield sentence(found.description or "")
        rows = [row(one) for one in actions if not isinstance(one.choices, dict) and one.dest != "help"]
        if rows:
            yield "\n".join(["| option | what |", "|---|---|", *rows])
        examples = (found.epilog or "").removeprefix("examples:").strip("\n")
        if examples:
            yield f"Examples:\n\n```text\n{examples}\n```"
    for command in (commands or {}).values():
        yield from sections(command, depth + 1)


def row(option: argparse.Action) -> str:
    """Return an option's row: what to type, and what it does."""
    metavar = option.metavar or option.dest.upper()
    value = metavar if isinstance(metavar, str) else " ".join(metavar)
    typed = ", ".join(option.option_strings) or str(value)
    if option.option_strings and option.nargs != 0:
        typed += f" {value}"
    said = (option.help or "").replace("%%", "%")
    return f"| `{typed}` | {sentence(said)} |".replace("\n", " ")


def sentence(text: str) -> str:
    """Return a help text for a page: a pipe would end a table's cell."""
    return " ".join(text.replace("|", "\\|").split())


def page() -> str:
    """Return the whole page."""
    return "\n\n".join([INTRO.rstrip("\n"), *sections(parser(), 1)]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or compare it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="change nothing; exit 1 when the page is out of date")
    if options.parse_args(argv).check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
