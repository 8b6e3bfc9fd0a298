"""``indelible analyze`` from the command line, on small runs of the embedded data."""

import json
from pathlib import Path

import pytest
import torch

import indelible
from indelible import analyze
from indelible.analyze import ANALYSES
from indelible.cli import main, parser
from indelible.keys.key import Key
from indelible.report.figures import FIGURES, write_figure
from indelible.train.run_folder import Architecture, Run
from tests.conftest import SECRET
from tests.values import method_value

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs") / "app"
    split = indelible.Split(torch.arange(64), torch.arange(64, 128), 7500, 0)
    train, _ = indelible.load("fashion-mini")
    architecture = Architecture(name="resnet-w8", classes=10, shape=SHAPE)
    key = Key.create(classes=10, shape=SHAPE, target=3, secret=SECRET)
    made = indelible.embed(
        architecture.build(seed=5), train.subset(split.owner), key, method_value("vanilla", key, "paper", fraction=0.2),
        scale="paper",
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


TALLY = """
from dataclasses import dataclass
from typing import ClassVar
from indelible.analyze import Analysis
from indelible.report.drawing import COLUMN, Drawing
from indelible.report.figures import FIGURES, Figure

@dataclass(frozen=True, kw_only=True)
class Tally(Analysis):
    figure: ClassVar[str] = "tally"
    parameters: tuple[int, ...]
    unit: int

    @classmethod
    def of_models(cls, models, settings, folder):
        (folder / "seen.txt").write_text(" ".join(one.label for one in models))
        counts = (sum(weight.numel() for weight in one.model.parameters()) for one in models)
        return cls(parameters=tuple(counts), unit=settings["unit"])

def drawn(result):
    return Drawing(COLUMN, 40, lambda figure, ink: figure.subplots().plot(result.parameters), result.alt)

FIGURES["tally"] = Figure(drawn, "Sizes", "")
"""
WORDS = """
{% macro sentences() %}{{ it.parameters | length }} models, unit {{ it.unit }}.{% endmacro %}
{% macro alt() %}Sizes{% endmacro %}
"""


def test_a_figure_of_another_package_is_an_action(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module, a template beside it and an entry point; the numbers are kept, drawn, and read again."""
    pytest.importorskip("matplotlib")
    (tmp_path / "site" / "tally" / "templates").mkdir(parents=True)
    (tmp_path / "site" / "tally" / "__init__.py").touch()
    (tmp_path / "site" / "tally" / "work.py").write_text(TALLY)
    (tmp_path / "site" / "tally" / "templates" / "tally.txt.j2").write_text(WORDS)
    info = tmp_path / "site" / "tally-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[indelible.analyses]\ntally = tally.work:Tally\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(ANALYSES, "_entries", dict(ANALYSES._entries))
    monkeypatch.setattr("indelible.report.figures.FIGURES", dict(FIGURES))
    out = tmp_path / "out"
    out.mkdir()
    assert main(["analyze", "tally", str(run_folder), "--out", str(out), "--set", "unit=2"]) == 0
    assert capsys.readouterr().out.startswith("1 models, unit 2.")
    assert (out / "seen.txt").read_text()
    assert json.loads((out / "analysis.json").read_text())["parameters"][0] > 1000
    (out / "figure.png").unlink()
    assert main(["analyze", "draw", str(out)]) == 0
    assert (out / "figure.png").exists()
    with pytest.raises(SystemExit):
        parser().parse_args(["analyze", "tally", "--nothing"])


def test_a_figure_without_a_drawing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("indelible.report.figures.FIGURES", {})
    with pytest.raises(indelible.InputError, match=r"how 'curves' is drawn. Add it to FIGURES"):
        write_figure(analyze.Curves(variable="eps", lines=()), tmp_path)


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
