"""``indelible doctor``: what it lists, and what it says when something is wrong."""

import json
from importlib import metadata

import pytest

from indelible.cli import doctor, main


def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["extras"]["plots"] == []
    assert found["data"]["fashion-mini"] == "built in"
    assert [test["ok"] for test in found["tests"].values()] == [True] * 3


def test_what_is_missing_and_what_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> str:
        raise RuntimeError("expected p = 1/9, got 1.0")

    needs = [
        "torch>=2.6",
        "no-such-package>=1; extra == 'plots'",
        'indelible[plots]; extra == "analysis"',
        "ruff; extra == 'dev'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: needs)
    monkeypatch.setattr(doctor, "_known_p_value", wrong)
    monkeypatch.setattr(doctor, "_round_trip", lambda: "fine")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "plots            missing no-such-package; install with: pip install 'indelible[plots]'" in out
    assert "FAILED (RuntimeError: expected p = 1/9, got 1.0" in out
    assert "OK (fine" in out
    assert "dev " not in out


def test_without_the_self_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-test"]) == 0
    assert "Self-test" not in capsys.readouterr().out
