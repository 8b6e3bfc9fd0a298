import json
from pathlib import Path

import pytest

from indelible.base.errors import InputError, UnknownNameError
from indelible.cli import data as command
from indelible.cli import parser


def _run(*words: str) -> int:
    arguments = parser().parse_args(["data", *words])
    code: int = getattr(command, f"run_{arguments.action}")(arguments)
    return code


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDELIBLE_DATA", str(tmp_path))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        "fashion-mini", "cifar10", "cifar100", "svhn", "mnist", "fashion-mnist",
    ]  # fmt: skip
    assert "built in" in lines[1]
    assert _run("list", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert entries[0]["train"] == 7500
    assert entries[1]["state"] == "no"


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("info", "cifar10") == 0
    text = capsys.readouterr().out
    assert "50,000 train, 10,000 test, 3x32x32" in text
    assert "--from npm" in text
    assert text.endswith("Fetch it with:  indelible data fetch cifar10\n")
    assert _run("info", "fashion-mini", "--json") == 0
    assert json.loads(capsys.readouterr().out)["licence"].startswith("MIT")
    with pytest.raises(UnknownNameError, match=r"unknown data set 'cifar'.*Did you mean 'cifar10'"):
        _run("info", "cifar")


def test_fetch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _run("fetch", "fashion-mini") == 0
    assert "7,500 training and 2,000 test images" in capsys.readouterr().out
    assert _run("fetch", "fashion-mini", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"] == 2000
    with pytest.raises(InputError, match="neither a place of svhn"):
        _run("fetch", "svhn", "--from", str(tmp_path / "nowhere"))
