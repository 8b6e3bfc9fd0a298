"""Make the parser of the command line from ``commands.toml``, whose header says what it may hold."""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from indelible.cli.known_names import (
    data_name,
    installed_methods,
    known_methods,
    known_names,
    method_name,
    model_name,
    one_of,
)


def percentage_points(text: str) -> float:
    """Read an accuracy that is given in percentage points as a fraction."""
    if not 0 <= float(text) <= 100:
        raise argparse.ArgumentTypeError(f"accuracy is given in percentage points from 0 to 100, got {text}.")
    return float(text) / 100


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers that commas separate."""
    return tuple(float(part) for part in text.split(","))


def number_or_all(text: str) -> int | str:
    """Read a whole number, or the word ``all``."""
    return text if text == "all" else int(text)


TYPES = {
    "int": int, "float": float, "path": Path, "points": percentage_points, "numbers": numbers,
    "number-or-all": number_or_all, "data": data_name, "model": model_name,
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"indelible: error: {message}{end} See '{self.prog} --help'.\n")


@cache
def command_table() -> Mapping[str, Any]:
    """Return the content of ``commands.toml``."""
    return tomllib.loads(resources.files("indelible.cli").joinpath("commands.toml").read_text(encoding="utf-8"))


def command_names() -> tuple[str, ...]:
    """Return the commands, in the order in which help lists them."""
    return tuple(command_table()["commands"])


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from indelible import __version__

    table = command_table()
    top = _Parser(prog="indelible", description=table["description"], epilog=table["epilog"])
    top.add_argument("--version", action="version", version=f"indelible {__version__}")
    top.set_defaults(action=None)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, about in table["commands"].items():
        command = commands.add_parser(name, **_explained(about["help"], about["examples"]))
        if "actions" not in about:
            add_options(command, about["options"])
            continue
        metavar = about.get("metavar", "|".join(about["actions"]))
        actions = command.add_subparsers(dest="action", required=True, metavar=metavar)
        for action, own in about["actions"].items():
            shown = [line for line in about["examples"] if f" {name} {action} " in f"{line} "]
            add_options(actions.add_parser(action, **_explained(own["help"], shown)), own.get("options", {}))
        others = installed_methods(about["plugins"]) if "plugins" in about else []
        for action in sorted(set(others) - set(about["actions"])):
            add_options(actions.add_parser(action, **_explained("of another installed package", ())), about["added"])
    return top


def _explained(text: str, examples: Sequence[str]) -> dict[str, Any]:
    """Return what a parser shows as help: a sentence, and examples at the end."""
    lines = "\n".join(f"  {line}" for line in examples)
    shown = {"help": text, "description": text, "epilog": f"examples:\n{lines}" if examples else None}
    return {**shown, "formatter_class": argparse.RawDescriptionHelpFormatter}


def add_options(command: argparse.ArgumentParser, options: Mapping[str, Any]) -> None:
    """Add the options of a command, and those that every command has."""
    found = _ungrouped({**options, "+common": {}})
    several = any(entry.get("exclusive") for _, entry in found)
    exclusive = command.add_mutually_exclusive_group() if several else command
    for name, entry in found:
        add_option(exclusive if entry.get("exclusive") else command, name, entry)


def _ungrouped(options: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return options by name, those of groups in the place of their group."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for name, entry in options.items():
        if not name.startswith("+"):
            found.append((name, entry))
            continue
        group = command_table()["groups"][name[1:]].items()
        kept = {one: {**given, **entry.get(one, {})} for one, given in group if entry.get(one) is not False}
        found += _ungrouped(kept)
    return found


def add_option(command: argparse._ActionsContainer, name: str, entry: Mapping[str, Any]) -> None:
    """Add one option or argument, from its entry of ``commands.toml``."""
    own = ("exclusive", "flag", "append", "names", "what", "plugins", "methods", "note", "free")
    given = {word: value for word, value in entry.items() if word not in own}
    values: Sequence[str] = ()
    if entry.get("flag"):
        given["action"] = "store_true"
    if entry.get("append"):
        given |= {"action": "append", "default": []}
    if entry.get("note"):
        given["help"] += f" ({entry['note']})"
    if "type" in given:
        given["type"] = TYPES[given["type"]]
    if isinstance(given.get("metavar"), list):
        given["metavar"] = tuple(given["metavar"])
    if "methods" in entry:
        values = list(known_methods(entry["methods"]))
        given |= {"type": partial(method_name, entry["methods"]), "metavar": "NAME"}
    if "names" in entry:
        values = entry["names"] if isinstance(entry["names"], list) else known_names(entry["names"])
        what, free = entry.get("what", entry["names"]), entry.get("free")
        check = partial(one_of, what, values, group=entry.get("plugins"), free=free)
        given |= {"type": check, "metavar": "NAME"}
    action = command.add_argument(name, **given)
    if values:  # for argcomplete
        vars(action)["completer"] = lambda **_given: list(values)
