"""``indelible report`` from the command line."""

import argparse
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from indelible.base.errors import InputError
from indelible.base.records import Record
from indelible.cli import report
from indelible.data.splits import Split
from indelible.train.run import Architecture, Run


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    record = Record(verb="embed", method="vanilla", settings={}, seed=0, metrics={"ba": 0.8, "wsr": 0.9})
    Run.save(
        tmp_path / "runs" / "v", model=nn.Linear(1, 1), record=record, data="fashion-mini",
        architecture=Architecture(name="resnet-w8", classes=10, shape=(1, 28, 28)),
        split=Split(torch.arange(8), torch.arange(8, 10), 7500, 0),
    )  # fmt: skip
    return tmp_path / "runs"


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    report.configure(parser)
    return report.run(parser.parse_args(words))


def test_a_page_is_written_and_named(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out" / "page.html"
    assert _run(str(run_folder), "--out", str(out), "--title", "A & B", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(out)}
    assert "<h1>A &amp; B</h1>" in out.read_text(encoding="utf-8")


def test_default_names(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(str(run_folder), "--hide-samples") == 0
    assert "hidden in this copy" in Path("report.html").read_text(encoding="utf-8")
    assert _run(str(run_folder), "--format", "markdown") == 0
    assert "| Vanilla | 80.0 | 90.0 | – |" in Path("report.md").read_text(encoding="utf-8")


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run"):
        _run(str(tmp_path / "nothing"))


def test_help_ends_in_examples() -> None:
    assert report.HELP
    assert all(line.startswith("indelible report ") for line in report.EXAMPLES)
