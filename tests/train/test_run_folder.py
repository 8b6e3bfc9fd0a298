"""A run on disk: one complete ``run.json``, written last and whole."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.records import Record
from indelible.data.splits import Split
from indelible.train.history import write_history
from indelible.train.run_folder import Architecture, Run, history_of

ROWS = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": float("nan")}]
VERDICT = {"owned": True, "wsr": 0.9, "p_value": 1e-9}
CURVE = {"name": "rate", "chosen": 0.1, "images": 7, "rows": [{"value": 0.1, "ba": 0.5, "wsr": 0.25, "chosen": True}]}


def save(folder: Path, **more: Any) -> Run:
    record = Record(verb="attack", method="fp", seed=3, settings={"method": {"rate": 0.1}}, metrics={"accuracy": 0.5})
    return Run.save(
        folder, model=nn.Linear(1, 1), record=record, data="fashion-mini", parent=folder.with_name("victim"),
        architecture=Architecture(name="resnet-w8", classes=10, shape=(1, 28, 28)),
        split=Split(torch.arange(4), torch.arange(4, 6), 10, 0), **more,
    )  # fmt: skip


def test_one_file_has_settings_metrics_verdict_curve_transforms_and_history(tmp_path: Path) -> None:
    write_history(tmp_path / "run", ROWS)
    cell, transforms = {"digest": "ab"}, [{"transform": "jpeg", "ba": 0.5, "wsr": 0.75}]
    made = save(tmp_path / "run", verdict=VERDICT, curve=CURVE, history=ROWS, cell=cell, transforms=transforms)
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["record"]["settings"] == {"method": {"rate": 0.1}}
    assert document["record"]["metrics"] == {"accuracy": 0.5}
    assert (document["verdict"], document["curve"], document["transforms"]) == (VERDICT, CURVE, transforms)
    assert document["history"] == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": None}]
    assert (document["cell"], document["parent"]) == (cell, "../victim")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "model.safetensors", "run.json", "split.safetensors",
    ]  # fmt: skip
    assert Run.load(tmp_path / "run") == made


def test_a_verdict_is_made_of_the_saved_weights_before_the_run_is_finished(tmp_path: Path) -> None:
    write_history(tmp_path / "run", ROWS)

    def verify(run: Run) -> dict[str, Any]:
        assert (run.folder / "model.safetensors").is_file()
        assert run.split().size == 10
        assert not Run.finished(run.folder)
        return VERDICT

    assert save(tmp_path / "run", verdict=verify, history=ROWS).verdict == VERDICT


def test_a_run_killed_before_its_verdict_is_not_finished_and_keeps_its_history(tmp_path: Path) -> None:
    write_history(tmp_path / "run", ROWS)

    def killed(run: Run) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "run", verdict=killed)
    assert not Run.finished(tmp_path / "run")
    with pytest.raises(InputError, match="no finished run"):
        Run.load(tmp_path / "run")
    assert [row["epoch"] for row in history_of(tmp_path / "run")] == [1, 2]


def test_history_of_a_run_under_way_and_of_a_finished_one(tmp_path: Path) -> None:
    assert history_of(tmp_path / "run") == ()
    write_history(tmp_path / "run", ROWS[:1])
    assert history_of(tmp_path / "run") == ROWS[:1]
    save(tmp_path / "run", history=ROWS)
    assert [row["epoch"] for row in history_of(tmp_path / "run")] == [1, 2]


def test_a_new_verdict_changes_nothing_else(tmp_path: Path) -> None:
    made = save(tmp_path / "run", curve=CURVE, history=ROWS)
    assert made.verdict is None
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    assert made.keep_verdict(VERDICT) == Run.load(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == {**before, "verdict": VERDICT}


def test_other_formats_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "run").folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    with pytest.raises(DamagedFileError, match="has format 1, this version reads 2"):
        Run.load(tmp_path / "run")
