"""The notebooks run, print what they show, and end in OWNED."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import ALONE

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"own-loop": ("pytorch_lightning", "transformers")}


def code_cells(path: Path) -> list[dict[str, list[str]]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def shown(path: Path) -> list[str]:
    """What each code cell printed when it was stored."""
    return ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in code_cells(path)]  # type: ignore[index]


def test_there_is_one_for_each_way_to_protect_a_model() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["new-model", "own-loop", "trained-model"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_a_run_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert "Traceback" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_ends_in_owned_and_shows_no_rate_without_a_verdict(path: Path) -> None:
    prints = shown(path)
    assert "OWNED\nDerived from a model that carries this key's watermark" in prints[-1]
    for text in prints:
        assert "watermark success rate" not in text or "OWNED" in text or "NOT SHOWN" in text


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_prints_what_it_shows(path: Path) -> None:
    """Up to digits, which differ a little from machine to machine."""
    missing = [name for name in ("nbclient", "ipykernel", *NEEDS.get(path.stem, ())) if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; pip install '.[dev]'")
    done = subprocess.run(
        [sys.executable, "tools/run_notebooks.py", "--check", str(path)],
        env=ALONE, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
