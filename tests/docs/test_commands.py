"""The commands of the pages run, as typed, on a tiny run with the training capped at two steps.

A command that is not run here is in ``NOT_RUN`` with the reason; all are parsed in ``test_docs.py``.
"""

import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from indelible.cli import main
from tests.docs.test_docs import ADDRESS, PAGES, blocks
from tests.verification.suspects.servers import serving_run

TINY = ["--data", "fashion-mini?train=400&test=200", "--train", "epochs=1", "--device", "cpu"]
SERVER, FILES = "needs a server", "needs files of the reader"
LONG, ELSEWHERE = "hours, or minutes that add nothing", "run in"
NOT_RUN = {
    r"\bcifar10|cifar100|svhn": "needs data that does not ship with the package",
    r"service\.json|timestamp|bundle|evidence claim": f"{SERVER}; {ELSEWHERE} tests/evidence, tests/verification",
    r"answers\.csv|model\.onnx|\.pem|net\.safetensors|my-key": f"{FILES}; {ELSEWHERE} tests/verification",
    r"noisy-ft|shake|my_attacks|runs/mine": f"needs the reader's attack; {ELSEWHERE} tests/base/test_plugins.py",
    r"--devices|--nodes": f"several processes; {ELSEWHERE} tests/train",
    r"runs/(plain|printed|rose|keyed|light|strong|four|protected)": "makes or reads a run that takes minutes",
    r"embed --out runs/app|attack runs/app --all|report bench|^bench (run|status|results)": LONG,
    r"analyze (?!samples)|--analysis": f"minutes; {ELSEWHERE} tests/analyze",
    r"attack runs/app (--method|--protocol|--scale|--set)": f"minutes in all; {ELSEWHERE} tests/attacks",
    r"--test decoys": "needs a key with one class",
    r"data fetch": "needs a network",
    r"results/": "reads a record of a repository",
}


def commands() -> list[str]:
    """Return every different command of the pages, without the program's name and comments."""
    lines = (line for page in PAGES for code in blocks(page, "console") for line in code.splitlines())
    typed = (
        shlex.split(line.removeprefix("$ "), comments=True)[1:] for line in lines if line.startswith("$ indelible ")
    )
    return sorted({shlex.join(words) for words in typed})


def reason(command: str) -> str | None:
    """Return why a command is not run."""
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), None)


@contextlib.contextmanager
def served(run: Path, command: str) -> Iterator[str]:
    """Yield a command with the address of a server that answers for a run, if it names a server."""
    if not ADDRESS.search(command):
        yield command
        return
    with serving_run(run) as address:
        yield ADDRESS.sub(address, command)


RUN = [command for command in commands() if reason(command) is None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``runs/app`` and its fine-tuned copy, as a run and as files of weights."""
    folder = tmp_path_factory.mktemp("home")
    out = str(folder / "runs" / "app")
    assert main(["embed", "--method", "vanilla", *TINY, "--out", out]) == 0
    assert main(["attack", out, "--set", "epochs=1", "--device", "cpu"]) == 0
    shutil.copyfile(folder / "runs" / "app-ft" / "model.safetensors", folder / "stolen.safetensors")
    torch.save(load_file(folder / "stolen.safetensors"), folder / "stolen.pt")
    return folder


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    from indelible.attacks.base import Removal
    from indelible.train.job import Job

    def two_steps(job: Removal, model: Any, data: Any, settings: Any, **rest: Any) -> None:
        job.device = "cpu"
        Job.fit(job, model, data, settings.but(epochs=1, max_steps=2), **rest)

    monkeypatch.setattr(Removal, "fit", two_steps)


@pytest.mark.slow
@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("command", RUN)
def test_command_runs(command: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    if command == "attack runs/app":
        shutil.rmtree(tmp_path / "runs" / "app-ft")
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "runs" / "app", command) as typed:
        code = main(shlex.split(typed))
    assert code in ({0, 1} if command.startswith("verify runs") else {0})  # a tiny model may be NOT SHOWN


def test_every_reason_for_leaving_a_command_out_is_needed() -> None:
    for pattern, why in NOT_RUN.items():
        assert any(re.search(pattern, command) for command in commands()), f"no command is left out because it {why}"
    assert len(RUN) >= 10
