"""Completion in the shell: the process is asked as bash asks it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def completions(line: str, tmp_path: Path) -> set[str]:
    """Return what the shell is offered behind ``line``."""
    out = tmp_path / "offered"
    asked = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }  # fmt: skip
    program = "import sys; from indelible.cli import entry; sys.exit(entry())"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **asked}, check=True, capture_output=True)
    return {word.strip() for word in out.read_text().splitlines()}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("indelible emb", {"embed"}),
        ("indelible embed --method tr", {"trades"}),
        ("indelible embed --kind n", {"noise"}),
        ("indelible evidence c", {"commit", "claim", "check"}),
    ],
)
def test_commands_options_and_names_are_completed(line: str, offered: set[str], tmp_path: Path) -> None:
    assert completions(line, tmp_path) == offered
