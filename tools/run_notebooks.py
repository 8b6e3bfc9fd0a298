"""Run the notebooks of the documentation and store what they print, so that no output is written by hand.

Each notebook runs from an empty folder in a kernel of its own: one thread, and new keys draw from a seeded generator
as in the tests. Standard error (progress, with timings) and the times of cells are left out.

Run it: python tools/run_notebooks.py            (--check: change nothing, exit 1 when a notebook prints something else)
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NUMBER = re.compile(r"\d[\d.,]*(?:e-?\d+)?")


def run(path: Path) -> Any:
    """Return a notebook as it is after a run, without standard error and times."""
    notebook = nbformat.read(path, as_version=4)
    search = [str(ROOT / "tests" / "repeatable"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, search))}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kernel:
        os.environ |= {"IPYTHONDIR": kernel, "JUPYTER_RUNTIME_DIR": kernel}  # nothing is left in the home folder
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def printed(notebook: Any) -> list[str]:
    """Return what each code cell prints, with ``#`` for numbers: they differ a little from machine to machine."""
    return [
        NUMBER.sub("#", "".join(output.get("text", "") for output in cell.outputs))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main() -> int:
    """Run the notebooks that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 if a notebook prints something else"
    )
    options = parser.parse_args()
    wrong = 0
    for path in options.notebooks:
        new = run(path)
        if not options.check:
            nbformat.write(new, path)
        elif (now := printed(new)) != (stored := printed(nbformat.read(path, as_version=4))):
            wrong += 1
            print(f"{path.name} prints\n{now}\nbut stores\n{stored}\nRun: python tools/run_notebooks.py")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
