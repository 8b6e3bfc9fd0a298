"""``indelible bench`` from plan to results, at a toy's scale."""

import json
import re
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
    assert {"smoke", "cifar10-cpu", "cifar10-paper", "ft-learning-rates"} <= known.keys()
    assert "Table 1" in bench(capsys, "list")


def test_from_plan_to_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, inline: InlineEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indelible.bench.estimate.plain_rate", lambda *_, **__: 100.0)
    preset, store = write_preset(tmp_path), tmp_path / "store"
    planned = json.loads(bench(capsys, "plan", preset, "--store", store, "--workers", "2", "--json"))
    assert [cell["done"] for cell in planned["cells"]] == [False] * 4
    # Two epochs of 128 images, for APP with 2 (8 + 8) rows beside every 32; FT has the other 32. A verdict is clean and
    # marked images and 20 decoys of 80; a model is evaluated on both three times. These passes count as a third.
    model, attack = (2 * 80 + 20 * 80 + 3 * 2 * 80) / 3, (2 * 80 + 20 * 80) / 3
    seconds = {
        ("vanilla", None): (256 + model) / 100, ("app", None): (2 * 256 + model) / 100,
        ("vanilla", "ft"): (64 + attack) / 100, ("app", "ft"): (64 + attack) / 100,
    }  # fmt: skip
    times = {(cell["method"], cell["attack"]): cell["seconds"] for cell in planned["cells"]}
    assert times == pytest.approx(seconds)
    assert planned["hours"] == pytest.approx(sum(seconds.values()) / 2 / 3600)
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
    # With other settings the plan finds nothing of this; what was recorded can still be kept.
    write_preset(tmp_path, change=("epochs = 2", "epochs = 3"))
    assert json.loads(bench(capsys, "results", preset, "--store", store, "--json"))["cells"] == []
    kept = json.loads(bench(capsys, "results", preset, "--store", store, "--from", out, "--json"))
    assert "records. --out FILE writes them" in bench(capsys, "results", preset, "--store", store, "--from", out)
    assert kept["cells"] == found["cells"]
    bench(capsys, "run", preset, "--store", store, "--only", "*/vanilla/before/*", "--from", out, "--out", out)
    replaced = json.loads(out.read_text())["cells"]
    assert [cell["settings"].get("train", {}).get("epochs") for cell in replaced] == [3, None]
    assert replaced[1] == found["cells"][1]


def test_results_of_another_session_count_as_finished_and_grow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, inline: InlineEngine
) -> None:
    preset, first, out = write_preset(tmp_path), tmp_path / "first", tmp_path / "results.json"
    bench(capsys, "run", preset, "--store", first, "--only", "*/vanilla/*", "--device", "cpu", "--out", out)
    known = json.loads(out.read_text())["cells"]
    assert [(cell["method"], cell["attack"]) for cell in known] == [("vanilla", None), ("vanilla", "ft")]
    inline.done.clear()

    # A store without anything: what the file has is not done again, and nothing of it is lost.
    go_on: list[str | Path] = [preset, "--store", tmp_path / "second", "--from", out]
    assert "4 cells, 2 done" in bench(capsys, "plan", *go_on)
    bench(capsys, "run", *go_on, "--only", "*/vanilla/*", "--device", "cpu")
    assert inline.done == []
    bench(capsys, "run", *go_on, "--only", "*/app/before/*", "--device", "cpu", "--out", out)
    grown = json.loads(out.read_text())["cells"]
    assert [(cell["method"], cell["attack"]) for cell in grown] == [("vanilla", None), ("vanilla", "ft"), ("app", None)]
    assert grown[:2] == known
    assert inline.done == [grown[2]["digest"]]

    # An attack that is missing needs the weights of its model, which is recorded but not here: it is trained again.
    inline.done.clear()
    write_preset(tmp_path, extra="[attacks.gentle]\nattack = 'ft'\nlr = 0.001\nepochs = 1\n")
    more: list[str | Path] = [*go_on[:2], tmp_path / "third", *go_on[3:], "--only", "*/vanilla/*"]
    assert "3 cells, 1 done" in bench(capsys, "plan", *more)
    states = json.loads(bench(capsys, "status", *more, "--json"))["states"]
    assert sorted(states.values()) == ["done", "waiting", "waiting"]
    bench(capsys, "run", *more, "--device", "cpu", "--out", out)
    last = {(cell["method"], cell["attack"]): cell for cell in json.loads(out.read_text())["cells"]}
    assert inline.done == [last["vanilla", None]["digest"], last["vanilla", "gentle"]["digest"]]
    assert last["vanilla", None] == known[0]
    assert last["vanilla", "gentle"]["inputs"]["model_digest"] == known[0]["measured"]["model_digest"]
    assert len(last) == 4


def test_a_committed_result_is_written_again_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "results" / "price-cpu.json"
    out = tmp_path / "price-cpu.json"
    bench(capsys, "results", "price-cpu", "--store", tmp_path / "none", "--from", committed, "--out", out)
    assert out.read_bytes() == committed.read_bytes()


def test_a_file_that_is_no_result_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[]")
    assert main(["bench", "plan", "smoke", "--from", str(path)]) == 2
    assert "must hold the results of a preset" in capsys.readouterr().err


def test_a_plan_names_the_machine_or_says_why_it_does_not_know(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indelible.bench import cells, estimate

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("indelible.base.records._processor", lambda: "Abacus 3000")
    monkeypatch.setattr("indelible.bench.estimate.plain_rate", lambda *_, **__: 100.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cells._digest_of.cache_clear()
    estimate.size_of.cache_clear()
    said = bench(capsys, "plan", write_preset(tmp_path), "--workers", "2")
    assert re.search(r"the rest takes about \d+\.\d s with 2 workers, each 1 thread of Abacus 3000", said)
    said = bench(capsys, "plan", "imagenet100-paper")
    assert "hours" not in said
    assert "the data set data/imagenet100?size=224&per_class=500,50 is not here" in said
    assert json.loads(bench(capsys, "plan", "imagenet100-paper", "--json"))["hours"] is None
    said = bench(capsys, "plan", "cifar10-paper", "--workers", "1")
    assert re.search(r"about [\d,]+ hours \([\d,]+ days\) with 1 worker, each 1 thread of Abacus 3000", said)
    assert main(["bench", "plan", "smoke", "--workers", "-1"]) == 2
    assert "workers and threads must be positive" in capsys.readouterr().err


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
        (["run", "forgery"], "unknown preset 'forgery'"),
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
