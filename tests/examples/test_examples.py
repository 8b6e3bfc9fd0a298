"""Every example runs to its verdict, and stays short enough to read."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import ALONE
from tests.waiting import PATIENCE

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
NEEDS = {"lightning_app": "pytorch_lightning", "transformers_app": "transformers"}


def test_there_is_one_for_each_way_in() -> None:
    assert [path.stem for path in EXAMPLES] == ["lightning_app", "own_loop", "own_model", "transformers_app"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_ends_in_a_verdict(path: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(path.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    done = subprocess.run(
        [sys.executable, str(path)], env=ALONE, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if path.stem == "own_model":
        assert [line.split(":")[0] for line in lines] == ["protected", "after fine-tuning", "unmarked"]
        assert "OWNED" in lines[0]
        assert "NOT SHOWN" in lines[2]
    else:
        assert lines[-1].startswith("OWNED"), done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
