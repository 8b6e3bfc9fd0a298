"""Help, lists and refusals answer at once: torch is not imported for them."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from indelible.cli import COMMANDS

SECONDS = 0.5  # of processor time; the best of a few runs, since a busy machine lengthens some
_SCRIPT = """
import contextlib, io, json, sys
from indelible.cli import main

found = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words)
    heavy = {"torch", "numpy", "scipy", "rich", "lightning_fabric", "matplotlib"} & set(sys.modules)
    found.append([code, sorted(heavy), out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
# Bad values, and what is said of them: the same as in Python, or as when the work was begun.
VALUES: list[tuple[list[str], str]] = [
    (["embed", "--out", "x", "--device", "cpx"], "unknown device 'cpx': choose one of auto, cpu, cuda, cuda:N, mps."),
    (["embed", "--out", "x", "--attacker", "2"], "--attacker must lie in [0, 1), got 2. The default is 0.2."),
    (["embed", "--out", "x", "--set", "eps=-1"], "eps must be at least 0, got -1. The default is 0.02."),
    (["embed", "--out", "x", "--set", "eps=x"], "the setting 'eps' must be a finite number, got 'x'."),
    (["embed", "--out", "x", "--train", "epochs=0"], "epochs must be at least 1, got 0. The default is 100."),
    (["embed", "--out", "x", "--train", "lr=NaN"], "the setting 'lr' must be a finite number, got nan."),
    (["attack", ".", "--method", "anp", "--set", "alpha=2"], "alpha must lie in [0, 1], got 2. The default is 0.2."),
    (["attack", ".", "--set", "lr=fast"], "the setting 'lr' must be a finite number, got 'fast'."),
    (["attack", ".", "--curve-images", "0"], "--curve-images must be at least 1, got 0. Leave it out."),
    (["attack", "nowhere"], "there is no run nowhere. Make one with `indelible embed --out nowhere`."),
    (["verify", "nowhere"], "there is no run nowhere. Make one with `indelible embed --out nowhere`."),
    (["evidence", "commit", "nowhere", "--out", "c"], "there is no run nowhere. Make one"),
    (["key", "show", "nowhere"], "nowhere is not a key: it has no key.json. Make one"),
    (["bench", "run", "smoke", "--engine", "x"], "unknown engine 'x': choose one of local, ray."),
    (["bench", "plan", "smok"], "unknown preset 'smok'"),
]
QUICK: list[tuple[list[str], int]] = [
    ([], 0),
    (["--help"], 0),
    (["--version"], 0),
    *(([command, "--help"], 0) for command in COMMANDS),
    (["evidence", "check", "--help"], 0),
    (["analyze", "landscape", "--help"], 0),
    (["embed", "--list"], 0),
    (["embed", "--list", "--json"], 0),
    (["attack", "--list"], 0),
    (["wash"], 2),
    (["embed"], 2),
    (["embed", "--frobnicate"], 2),
    (["embed", "--seed", "x"], 2),
    (["embed", "--out", "x", "--method", "ap"], 2),
    (["embed", "--out", "x", "--kind", "smell"], 2),
    (["embed", "--out", "x", "--scale", "gpu"], 2),
    (["embed", "--out", "x", "--model", "resnet-19"], 2),
    (["embed", "--out", "x", "--data", "cifra10"], 2),
    (["embed", "--out", "x", "--set", "epsilon=1"], 2),
    (["embed", "--out", "x", "--train", "epoch=1"], 2),
    (["embed", "--out", "x", "--start", "trained"], 2),
    (["attack"], 2),
    (["attack", "runs/app", "--method", "wash"], 2),
    (["attack", "runs/app", "--protocol", "loud"], 2),
    (["attack", ".", "--set", "speed=1"], 2),
    (["attack", "runs/app", "--ba-drop", "200"], 2),
    (["verify", "runs/app", "--procedure", "taste"], 2),
    (["key", "create", "k"], 2),
    (["key", "create", "k", "--labels", "loud"], 2),
    (["bench", "list"], 0),
    (["bench", "list", "--json"], 0),
    *((words, 2) for words, _ in VALUES),
]


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    """All in one process: what any of them imports is seen."""
    asked = json.dumps([words for words, _ in QUICK])
    found = subprocess.run(
        [sys.executable, "-c", _SCRIPT], input=asked, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    answers = json.loads(found.stdout)
    assert len(answers) == len(QUICK)
    for (words, expected), (code, heavy, out, err) in zip(QUICK, answers, strict=True):
        assert code == expected, (words, err)
        assert heavy == [], words
        assert err.startswith("indelible: error: ") if expected else out, words
    said = {" ".join(words): err for (words, _), (_, _, _, err) in zip(QUICK, answers, strict=True)}
    for words, told in VALUES:
        assert told in said[" ".join(words)]
        assert said[" ".join(words)].count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["verify", "--help"],
        ["--version"],
        ["attack", "--list"],
        ["embed", "--nothing"],
        ["embed", "--out", "x", "--set", "eps=-1"],
        ["verify", "nowhere"],
        ["bench", "list"],
    ],
)
def test_processor_time(words: list[str], tmp_path: Path) -> None:
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "indelible", *words], capture_output=True, check=False, cwd=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < SECONDS
