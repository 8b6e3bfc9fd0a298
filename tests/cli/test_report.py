"""``indelible report`` from the command line."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from indelible.base.errors import InputError
from indelible.base.records import Record
from indelible.cli import main, parser, report
from indelible.cli.command_line import command_table
from indelible.data.splits import Split
from indelible.report import FORMATS
from indelible.train.run_folder import Architecture, Run
from tests.report.results import fill_store, make_results


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
    return report.run(parser().parse_args(["report", *words]))


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


def test_the_formats_are_those_that_tables_have() -> None:
    assert command_table()["commands"]["report"]["options"]["--format"]["choices"] == list(FORMATS)


def test_the_papers_tables_need_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run("--reported", "--format", "markdown") == 0
    text = Path("report.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("### ") and "BA" not in line] == [
        "### CIFAR-10", "### CIFAR-100", "### ImageNet subset",
    ]  # fmt: skip
    assert _run("--reported", "mobilenetv2", "--format", "latex", "--out", "m.tex") == 0
    assert r"\textbf{99.77} & \textbf{67.84}" in Path("m.tex").read_text(encoding="utf-8")


def test_results_and_a_store_give_tables(tmp_path: Path) -> None:
    document = make_results(kinds=["content"], methods=["vanilla", "app"], attacks=["ft"])
    results = tmp_path / "results.json"
    results.write_text(json.dumps(document))
    fill_store(tmp_path / "bench", [cell | {"preset": document["preset"]} for cell in document["cells"]])
    for given, out in ((results, tmp_path / "a.md"), (tmp_path / "bench", tmp_path / "b.md")):
        assert _run(str(given), "--format", "markdown", "--out", str(out)) == 0
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()
    assert "| **90.00** ✓ (**96.63**, −6.63) |" in (tmp_path / "a.md").read_text(encoding="utf-8")


def test_what_does_not_go_together_is_refused(run_folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text(json.dumps(make_results(kinds=["content"], methods=["app"], attacks=["ft"])))
    for words, message in (
        ((), "name runs or results"),
        ((str(run_folder), "--reported"), "leave out the runs"),
        ((str(run_folder), str(results)), "different reports"),
        ((str(run_folder), "--format", "latex"), "html or markdown, not latex"),
    ):
        with pytest.raises(InputError, match=message):
            _run(*words)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("history", [{"epoch": 1}, {"epoch": "two"}], "run.json: 'history' is not a list of rows"),
        ("verdict", [], "run.json: 'verdict' is not a verdict"),
        ("curve", {"name": "rate"}, "run.json: 'curve' is not the curve of an attack"),
        ("transforms", {}, "run.json: 'transforms' is not a list of rates"),
    ],
)
def test_damaged_parts_of_a_run_are_one_line(
    name: str, content: object, said: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_folder / "v" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: content}))
    assert main(["report", str(run_folder), "--out", str(tmp_path / "page.html")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
