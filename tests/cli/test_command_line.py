"""The table of commands: every entry is used, and every command does something."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from indelible.cli import COMMANDS
from indelible.cli import known_names as known_names_file
from indelible.cli.command_line import TYPES, command_table
from indelible.cli.known_names import known_methods, known_names

KNOWN = {
    "append", "choices", "default", "dest", "exclusive", "flag", "free", "help", "metavar", "methods", "names", "nargs",
    "note", "plugins", "required", "type", "what",
}  # fmt: skip


def tables() -> Iterator[Mapping[str, Any]]:
    """Yield the options of every command, action and group."""
    for command in command_table()["commands"].values():
        yield from (one.get("options", {}) for one in (command, *command.get("actions", {}).values()))
    yield from command_table()["groups"].values()


def test_entries_are_known() -> None:
    for options in tables():
        for name, entry in options.items():
            if name.startswith("+"):
                group = command_table()["groups"][name[1:]]
                inside = {option for option in group if not option.startswith("+")}
                assert entry.keys() <= inside, f"{name} changes options that it does not have"
                entries = [one for one in entry.values() if one is not False]
            else:
                entries = [entry]
            for one in entries:
                assert one.keys() <= KNOWN, name
                assert one.get("type") in {None, *TYPES}
                assert "names" not in one or isinstance(one["names"], list) or known_names(one["names"])
                assert one.get("names") != []
                assert "free" not in one or "names" in one
                assert "methods" not in one or known_methods(one["methods"])


def test_every_group_is_used() -> None:
    used = {name[1:] for options in tables() for name in options if name.startswith("+")}
    assert used | {"common"} == command_table()["groups"].keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_action_has_a_function(command: str) -> None:
    module = importlib.import_module(f"indelible.cli.{command}")
    for action in command_table()["commands"][command].get("actions", ["none"]):
        # The list of presets needs no torch, unlike the rest of its command.
        home = known_names_file if (command, action) == ("bench", "list") else module
        assert callable(getattr(home, f"run_{action.replace('-', '_')}", None) or module.run)
