"""``attack --all``: every attack into its own folder, finished ones kept, the paper's row at the end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from indelible.attacks import ATTACKS
from indelible.base.registry import MethodInfo
from indelible.bench.attack_suite import attack_folder, held_back
from indelible.cli import main
from indelible.data.images import Data
from indelible.keys.key import Key
from indelible.report.charts import panels
from indelible.report.model_stages import collect
from indelible.train.run_folder import Run
from tests.conftest import SECRET, SHAPE, stripes


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Vanilla model that a run folder holds."""
    root = tmp_path_factory.mktemp("suite")
    train, test = stripes(160), stripes(80, seed=1)
    np.savez(
        root / "bars.npz", x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
        y_test=test.labels.numpy(),
    )  # fmt: skip
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET).save(root / "my-key")
    words = ["embed", "--data", root / "bars.npz", "--model", "tests.conftest:TinyNet", "--out", root / "mine"]
    settings = ["--key", key, "--method", "vanilla", "--set", "fraction=0.2", "--train", "epochs=2", "--device", "cpu"]
    assert main([*map(str, words), *map(str, settings), "--train", "batch_size=32", "--quiet"]) == 0
    return root / "mine"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only three attacks are registered: one without a strength, one with, and one of several phases."""
    chosen: dict[str, MethodInfo] = {name: ATTACKS[name] for name in ("ft", "fp", "nad")}
    monkeypatch.setattr(ATTACKS, "_entries", chosen)


def suite(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    quick = ["--set", "epochs=1", "--set", "teacher_epochs=1", "--device", "cpu", "--json"]
    assert main(["attack", *map(str, words), "--all", *quick]) == code
    out, err = capsys.readouterr()
    return json.loads(out) if code == 0 else err + out


def right_of(model: nn.Module, data: Data) -> int:
    """Return how many images a model knows."""
    every = data.gather(torch.arange(len(data)))
    return int((model.eval()(every.images.float() / 255).argmax(1) == every.labels).sum())


@pytest.mark.usefixtures("few")
def test_the_whole_suite(capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path) -> None:
    made = suite(capsys, victim, "--out", tmp_path / "x", "--ba-drop", "5")
    assert [Path(folder).name for folder in made["runs"]] == ["x-ft", "x-fp", "x-nad"]
    (row,) = made["suite"]
    before, after = Run.load(victim).record.metrics, row["after"]
    assert (row["ba"], row["wsr"], row["kind"]) == (before["ba"], before["wsr"], "content")
    assert list(after) == ["ft", "fp", "nad"]
    drops = [row["wsr"] - after[name]["wsr"] for name in after]
    assert row["avg_drop"] == pytest.approx(sum(drops) / 3)
    assert Run.load(tmp_path / "x-fp").record.settings["method"]["ba_drop"] == 0.05

    # The curve of fine-pruning: at rate 0 it is the stolen model, whose rates the run's record knows.
    curve = Run.load(tmp_path / "x-fp").curve
    assert curve is not None
    assert (curve["name"], len(curve["rows"])) == ("rate", 20)
    assert (curve["rows"][0]["ba"], curve["rows"][0]["wsr"]) == (before["ba"], before["wsr"])
    assert Run.load(tmp_path / "x-ft").curve is None
    drawn = [panel for panel in panels(collect([victim, tmp_path])) if panel.title.endswith("at each strength")]
    assert [(panel.title, len(panel.charts)) for panel in drawn] == [("Attack: FP, at each strength", 1)]

    # Again: nothing is done twice; a missing one is made, and a missing verdict.
    stamps = {name: (tmp_path / f"x-{name}" / "model.safetensors").stat().st_mtime_ns for name in after}
    Run.load(tmp_path / "x-ft").keep_verdict(None)
    (tmp_path / "x-nad" / "run.json").unlink()
    again = suite(capsys, victim, "--out", tmp_path / "x", "--ba-drop", "5")
    assert again["suite"] == made["suite"]
    assert (tmp_path / "x-ft" / "model.safetensors").stat().st_mtime_ns == stamps["ft"]
    assert (tmp_path / "x-nad" / "model.safetensors").stat().st_mtime_ns != stamps["nad"]
    assert "other settings or of another model" in suite(capsys, victim, "--out", tmp_path / "x", code=2)

    # What each cost, by images that no attack was given: a tenth of the attacker's 32.
    found = again["attacks"]
    held = held_back(Run.load(victim).images()[1], 0)[1]
    before_attack = right_of(Run.load(victim).model(), held) / 3
    assert (found["held_out"], found["ba_drop"], found["left_out"]) == (3, 0.05, [])
    assert found["before"] == before_attack
    for row in found["rows"]:
        record = Run.load(row["folder"]).record
        assert (record.inputs["images"], record.images, record.seconds) == (29, row["images"], row["seconds"])
        kept = right_of(Run.load(row["folder"]).model(), held) / 3
        assert record.metrics["held_out"] == {"images": 3, "before": before_attack, "after": kept}
        assert (row["accuracy"], row["within"]) == (kept, kept >= before_attack - 0.05)
    # None of the three is owned, all with p = 1: of those within the budget the one with the lowest WSR is the worst.
    assert {name: (one["owned"], one["p_value"]) for name, one in after.items()} == dict.fromkeys(after, (False, 1.0))
    within = [row["attack"] for row in found["rows"] if row["within"]]
    assert within == ["ft", "nad"]
    assert after["ft"]["wsr"] < after["nad"]["wsr"]
    assert made["strongest"] == str(tmp_path / "x-ft")


@pytest.mark.usefixtures("few")
def test_attacks_without_the_key_and_verdicts_later(
    capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path
) -> None:
    stolen = tmp_path / "stolen"
    shutil.copytree(victim, stolen)
    shutil.rmtree(stolen / "key")  # a thief has none
    made = suite(capsys, stolen, "--no-verdict")
    assert (made["suite"], made["strongest"]) == ([], None)
    assert [Path(folder).name for folder in made["runs"]] == ["stolen-ft", "stolen-fp", "stolen-nad"]
    runs = [Run.load(folder) for folder in made["runs"]]
    assert not any(run.verdict or run.curve for run in runs)
    again = suite(capsys, stolen, "--no-verdict")
    assert again["attacks"] == made["attacks"]

    key, pattern = str(victim / "key"), str(tmp_path / "stolen-*")
    code = main(["verify", "--runs", pattern, "--key", key, "--ba-drop", "100", "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert [Path(row["run"]).name for row in document["verdicts"]] == ["stolen-fp", "stolen-ft", "stolen-nad"]
    assert [row["owned"] for row in document["verdicts"]] == [False, False, False]
    assert code == 1
    for row in document["verdicts"]:
        assert Run.load(row["run"]).verdict == {name: value for name, value in row.items() if name != "run"}
    # All with p = 1, and any loss of accuracy is within the budget: the lowest WSR is the worst.
    rates = {Path(row["run"]).name: (row["p_value"], row["wsr"]) for row in document["verdicts"]}
    assert {value for value, _ in rates.values()} == {1.0}
    assert rates[Path(document["strongest"]).name][1] == min(rate for _, rate in rates.values())
    assert len({rate for _, rate in rates.values()}) > 1
    # One at a time, the verdict is the same.
    main(["verify", str(tmp_path / "stolen-ft"), "--key", key, "--json", "--quiet"])
    alone = json.loads(capsys.readouterr().out)
    assert alone == {name: value for name, value in document["verdicts"][1].items() if name != "run"}
    assert main(["verify", "--runs", pattern, "--key", key, "--quiet"]) == code
    out = capsys.readouterr().out
    assert all(word in out for word in ("Held-out BA", "stolen-nad", "Owned"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--runs", "nowhere-*"], "there is no finished run"),
        (["--runs", "nowhere"], "there is no run nowhere"),
        (["--runs", "x", "--suspect", "model.onnx"], "leave out --suspect"),
        (["mine", "--runs", "x"], "leave out RUN"),
    ],
)
def test_refusals_of_several_runs(capsys: pytest.CaptureFixture[str], words: list[str], expected: str) -> None:
    assert main(["verify", *words]) == 2
    assert expected in capsys.readouterr().err


def test_a_single_attack_is_no_part_of_a_suite(
    capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given all of the attacker's images, so that none of them can judge it."""
    monkeypatch.setattr(ATTACKS, "_entries", {"quantise": ATTACKS["quantise"]})
    words = ["attack", str(victim), "--device", "cpu", "--quiet"]
    assert main([*words, "--method", "quantise", "--out", str(tmp_path / "x-quantise")]) == 0
    assert main([*words, "--all", "--out", str(tmp_path / "x")]) == 2
    assert "was given other images" in capsys.readouterr().err


def test_what_has_no_such_protocol_is_left_out(
    capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", {name: ATTACKS[name] for name in ("clp", "quantise")})
    words = ["attack", str(victim), "--all", "--protocol", "paper", "--out", str(tmp_path / "x"), "--device", "cpu"]
    assert main([*words, "--quiet"]) == 0
    assert "not run, because they have no protocol paper: quantise" in capsys.readouterr().out
    assert not (tmp_path / "x-quantise-paper-protocol").exists()
    assert main([*words[:-4], "--protocol", "none", "--quiet"]) == 2
    assert "unknown protocol 'none'" in capsys.readouterr().err


def test_images_of_another_data_set(capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path) -> None:
    other = stripes(60, classes=2, seed=9)
    np.savez(
        tmp_path / "two.npz", x_train=other.images.numpy(), y_train=other.labels.numpy(),
        x_test=other.images.numpy(), y_test=other.labels.numpy(),
    )  # fmt: skip
    words = ["attack", str(victim), "--data", str(tmp_path / "two.npz"), "--set", "epochs=1", "--device", "cpu"]
    assert main([*words, "--method", "distill", "--out", str(tmp_path / "copied"), "--quiet"]) == 0
    copied = Run.load(tmp_path / "copied")
    assert (copied.record.inputs["images"], copied.architecture.classes) == (60, 4)
    assert copied.verdict is not None
    capsys.readouterr()
    assert main([*words, "--method", "ft", "--out", str(tmp_path / "tuned")]) == 2
    assert "has 2 classes" in capsys.readouterr().err
    assert main([*words, "--all"]) == 2
    assert "--data works with one attack only" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_the_row_for_people(capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path) -> None:
    words = ["attack", victim, "--all", "--protocol", "paper", "--out", tmp_path / "x", "--set", "epochs=1", "--quiet"]
    assert main([*map(str, words), "--set", "teacher_epochs=1", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("Before", "FT", "FP", "NAD", "AvgDrop", "WSR", "BA", "3 of the paper's 6"))
    assert (tmp_path / "x-fp-paper-protocol" / "run.json").is_file()


def test_scales_have_folders_of_their_own_and_cpu_measures_curves_by_fewer_images(
    capsys: pytest.CaptureFixture[str], victim: Path
) -> None:
    words = ["attack", str(victim), "--method", "fp", "--scale", "cpu", "--set", "epochs=1", "--device", "cpu"]
    assert main([*words, "--curve-images", "20", "--quiet", "--json"]) == 0
    made = Run.load(victim.with_name("mine-fp"))
    assert attack_folder(victim, "fp", scale="paper") == victim.with_name("mine-fp-paper-scale")
    settings = made.record.settings
    assert (settings["scale"], settings["method"]["every"], settings["method"]["epochs"]) == ("cpu", 4, 1)
    curve, verdict = made.curve, made.verdict
    assert curve is not None
    assert verdict is not None
    assert curve["images"] == 20
    assert all(round(row["ba"] * 20, 6) % 1 == 0 for row in curve["rows"])
    # The verdict is by all test images, whatever the curve was measured by: 80 less those of the target class.
    assert verdict["trials"] == 60

    # Again, without its verdict: only that is made.
    made.keep_verdict(None)
    assert main([*words, "--set", "lr=0.04"]) == 2
    assert main([*words, "--json"]) == 0
    assert Run.load(made.folder) == made
    assert main(words) == 2
    assert "finished run already" in capsys.readouterr().err


def test_refusals(capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path) -> None:
    for words, expected in (
        (["--method", "ft", "--ba-drop", "2"], "no strength to choose"),
        (["--method", "fp", "--ba-drop", "200"], "0 to 100"),
        (["--all", "--set", "nothing=1"], "unknown setting 'nothing'"),
        (["--method", "nothing"], "unknown removal attack"),
        (["--method", "ft", "--scale", "gpu"], "unknown scale 'gpu'"),
        (["--method", "fp", "--curve-images", "0"], "--curve-images must be at least 1, got 0"),
        (["--method", "fp", "--set", "cpu_settings=1"], "unknown setting 'cpu_settings'"),
    ):
        assert main(["attack", str(victim), *words, "--out", str(tmp_path / "y")]) == 2
        assert expected in capsys.readouterr().err


def test_an_attack_that_cannot_be_made_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", {name: ATTACKS[name] for name in ("fp", "nad")})
    from indelible.attacks import fp
    from indelible.base.errors import InputError

    def refuse(*_: object) -> None:
        raise InputError("no stage to prune")

    monkeypatch.setattr(fp, "feature_reader", refuse)
    told = suite(capsys, victim, "--out", tmp_path / "z", code=2)
    assert '"fp": "no stage to prune"' in told
    assert json.loads(told)["runs"] == [str(tmp_path / "z-nad")]
