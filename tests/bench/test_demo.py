"""The demo at a toy's scale: all rows, resumed without doing anything twice, the same figures again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indelible.bench.demo import DEMO, run_demo
from indelible.bench.preset import BenchPreset, Variant
from indelible.report import markdown_table, write_report
from indelible.train.run_folder import Run
from tests.conftest import stripes


@pytest.fixture
def small(tmp_path: Path) -> BenchPreset:
    path = tmp_path / "bars.npz"
    train, test = stripes(160), stripes(80, seed=1)
    np.savez(
        path, x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
        y_test=test.labels.numpy(),
    )  # fmt: skip
    rows = (
        Variant(label="app", name="app", settings={"rows": 8, "clean_rows": 8, "alpha": 0.5}, train={}),
        Variant(label="unmarked", name="none", settings={}, train={}),
    )
    return replace(
        DEMO, data=str(path), architectures=("tests.conftest:TinyNet",), methods=rows,
        attacks=(Variant(label="ft", name="ft", settings={"epochs": 1, "batch_size": 32}, train={}),),
        train={**DEMO.train, "epochs": 2, "batch_size": 32},
    )  # fmt: skip


@pytest.mark.slow
def test_runs_once_and_only_once(small: BenchPreset, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    folders = run_demo(out, seeds=[0, 1], preset=small, workers=2)
    names = [folder.relative_to(out).as_posix() for folder in folders]
    assert names == [f"seed-{seed}/{name}" for seed in (0, 1) for name in ("app", "app-ft", "unmarked")]
    runs = [Run.load(folder) for folder in folders]
    assert all(run.verdict is not None for run in runs)
    assert runs[0].record.metrics["model_digest"] != runs[3].record.metrics["model_digest"]
    assert runs[2].record.method == "none"
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert run_demo(out, seeds=[0, 1], preset=small, workers=1) == folders
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == stamps
    again = run_demo(tmp_path / "again", seeds=[0], preset=small, workers=1)
    digests = [Run.load(folder).record.metrics["model_digest"] for folder in again]
    assert digests == [run.record.metrics["model_digest"] for run in runs[:3]]
    assert write_report(folders, out / "report.html").stat().st_size > 10_000
    assert "APP" in markdown_table(folders)


def test_the_control_differs_from_app_in_eps_only() -> None:
    rows = {row.label: row.settings for row in DEMO.methods}
    assert rows["control"] == {"eps": 0.0}
    assert rows["app"] == {}
    assert rows["vanilla"] == {}
