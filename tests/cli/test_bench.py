"""``indelible bench`` from plan to results, at a toy's scale."""

import json
from pathlib import Path

import pytest

from indelible.cli import main
from tests.bench.micro import InlineEngine, write_preset


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> InlineEngine:
    engine = InlineEngine()
    monkeypatch.setattr("indelible.cli.bench._engine", lambda _arguments: engine)
    return engine


def bench(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    assert main(["bench", *map(str, words)]) == code
    return capsys.readouterr().out


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    known = json.loads(bench(capsys, "list", "--json"))
    assert {"smoke", "cifar10-cpu", "cifar10-paper", "ft-learning-rates", "speed"} <= known.keys()
    assert "Table 1" in bench(capsys, "list")


def test_from_plan_to_results(capsys: pytest.CaptureFixture[str], tmp_path: Path, inline: InlineEngine) -> None:
    preset, store = write_preset(tmp_path), tmp_path / "store"
    planned = json.loads(bench(capsys, "plan", preset, "--store", store, "--workers", "2", "--json"))
    assert [cell["done"] for cell in planned["cells"]] == [False] * 4
    assert planned["hours"] == pytest.approx(sum(cell["seconds"] for cell in planned["cells"]) / 7200)
    assert "a step measured now" in planned["basis"]["tests.conftest:TinyNet"]
    assert not store.exists()  # looking changes nothing

    said = bench(capsys, "run", preset, "--store", store, "--only", "*/vanilla/*", "--device", "cpu")
    assert "2 of 2 cells are done" in said
    again = bench(capsys, "plan", preset, "--store", store)
    assert again.count("done  ") == 2
    assert "4 cells, 2 done" in again
    assert "finished cells" in again

    shown = bench(capsys, "status", preset, "--store", store)
    assert "2 of 4 cells" in shown
    states = json.loads(bench(capsys, "status", preset, "--store", store, "--json"))["states"]
    assert sorted(states.values()) == ["done", "done", "waiting", "waiting"]

    out = tmp_path / "results.json"
    bench(capsys, "results", preset, "--store", store, "--out", out)
    found = json.loads(out.read_text())
    assert [(cell["method"], cell["attack"]) for cell in found["cells"]] == [("vanilla", None), ("vanilla", "ft")]
    assert (found["planned"], found["title"]) == (4, "Micro")
    # With other settings the plan finds nothing of this; what was recorded can still be had.
    write_preset(tmp_path, change=("epochs = 2", "epochs = 3"))
    assert json.loads(bench(capsys, "results", preset, "--store", store))["cells"] == []
    kept = json.loads(bench(capsys, "results", preset, "--store", store, "--as-recorded"))
    assert kept["cells"] == found["cells"]


def test_failures_are_told_and_give_exit_code_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, inline: InlineEngine
) -> None:
    preset = write_preset(tmp_path, change=("tests.conftest:TinyNet", "tests.conftest:NoSuchNet"))
    store = tmp_path / "store"
    said = json.loads(bench(capsys, "run", preset, "--store", store, "--json", code=1))
    assert said["done"] == 0
    assert len(said["failed"]) == 2  # the models; attacks on them are left out
    assert "NoSuchNet" in next(iter(said["failed"].values()))
    shown = bench(capsys, "status", preset, "--store", store)
    assert shown.count("failed: ") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "smok"], "Did you mean 'smoke'"),
        (["run", "smoke", "--engine", "slurm"], "unknown engine 'slurm'"),
        (["plan", "smoke", "--only", "nothing"], "no cell matches"),
        (["run", "cifar100-paper"], "indelible data fetch cifar100"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indelible.bench import cells

    monkeypatch.setenv("INDELIBLE_DATA", str(tmp_path))
    cells._digest_of.cache_clear()
    assert main(["bench", *words, "--store", str(tmp_path / "store")]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1
    cells._digest_of.cache_clear()
