"""Every experiment is one command whose help works, and whose errors are one line."""

import importlib
from pathlib import Path

import pytest

from command import Finding, command, guarded
from indelible.base.errors import InputError

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PROGRAMS = sorted(
    path.stem for path in EXPERIMENTS.glob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process: fourteen programs that each import torch would take a minute."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(["--help"])
    assert ended.value.code == 0
    assert f"python experiments/{name}.py" in capsys.readouterr().out, "the help has an example"


def test_a_record_is_written_and_what_does_not_hold_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command("about").parse_args(["--out", str(tmp_path / "found.json")])
    assert guarded(arguments, lambda _: Finding(record={"share": 0.5}, lines=["a", "b"], holds=False)) == 1
    assert capsys.readouterr().out == "a\nb\n"
    assert (tmp_path / "found.json").read_text() == '{\n  "share": 0.5\n}\n'
    assert guarded(arguments, lambda _: Finding(record={}, lines=[])) == 0


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(_: object) -> Finding:
        raise InputError("expected 3,\n got 7.")

    def interrupted(_: object) -> Finding:
        raise KeyboardInterrupt

    assert guarded(command("about").parse_args([]), refused) == 2
    assert capsys.readouterr().err == "error: expected 3, got 7.\n"
    assert guarded(command("about").parse_args([]), interrupted) == 130
