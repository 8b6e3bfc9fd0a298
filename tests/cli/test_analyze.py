"""``indelible analyze`` from the command line, on small runs of the embedded data."""

import json
from pathlib import Path

import pytest
import torch

import indelible
from indelible.cli import main
from indelible.keys.key import Key
from indelible.train.run_folder import Architecture, Run
from tests.conftest import SECRET

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs") / "app"
    split = indelible.Split(torch.arange(64), torch.arange(64, 128), 7500, 0)
    train, _ = indelible.load("fashion-mini")
    architecture = Architecture(name="resnet-w8", classes=10, shape=SHAPE)
    key = Key.create(classes=10, shape=SHAPE, target=3, secret=SECRET)
    made = indelible.embed(
        architecture.build(seed=5), train.subset(split.owner), key, "vanilla", scale="paper", fraction=0.2,
        train=indelible.TrainSettings(epochs=1, batch_size=32, max_steps=2),
    )  # fmt: skip
    Run.save(
        folder, model=made.model, record=made.record, architecture=architecture, data="fashion-mini", split=split,
        key=key,
    )  # fmt: skip
    return folder


FEW = ["--set", "images=20"]


@pytest.mark.parametrize(
    "words",
    [
        [
            "landscape",
            *FEW,
            "--set",
            "marked=20",
            "--set",
            "statistics=32",
            "--set",
            "steps=3",
            "--set",
            "tune_steps=2",
        ],
        ["batchnorm", *FEW, "--layer", "2"],
        ["samples"],
        ["dynamics", *FEW, "--set", "carriers=30", "--attack-set", "epochs=1"],
    ],
    ids=lambda words: words[0],
)
def test_each_figure(words: list[str], run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["analyze", words[0], str(run_folder), "--out", str(tmp_path), *words[1:], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["figure"] == words[0]
    assert document["sentences"]
    assert {"analysis.json", "figure.png", "figure.svg"} <= {path.name for path in tmp_path.iterdir()}
    (tmp_path / "figure.png").unlink()
    assert main(["analyze", "draw", str(tmp_path), "--json"]) == 0
    assert (tmp_path / "figure.png").exists()


def test_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        {"dataset": "d", "architecture": "net", "kind": "content", "method": "app", "seed": 0, "attack": None,
         "settings": {"method_settings": {"eps": eps}}, "measured": {"ba": 0.9, "wsr": eps}}
        for eps in (0.1, 0.2)
    ]  # fmt: skip
    (tmp_path / "results.json").write_text(json.dumps({"preset": "p", "cells": cells}))
    words = ["analyze", "curves", str(tmp_path / "results.json"), "--over", "eps", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "WSR from 10.0 % (at 0.1) to 20.0 % (at 0.2)" in capsys.readouterr().out


def test_bad_input(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "landscape", str(tmp_path / "nothing")]) == 2
    assert main(["analyze", "landscape", str(run_folder), "--set", "colour=3", "--out", str(tmp_path)]) == 2
    assert "unknown setting" in capsys.readouterr().err
    assert main(["analyze", "draw", str(tmp_path)]) == 2
    assert "no finished analysis" in capsys.readouterr().err
