"""Freed memory stays in processes that Indelible starts, and only there: seen from outside, by page faults."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import indelible.cli
from indelible.base import allocator
from indelible.base.allocator import keep_freed_memory
from indelible.train.processes import spread

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these thresholds")

# Without large pages (prctl 41 is PR_SET_THP_DISABLE): how many there are depends on what else the machine does.
_BEGIN = """
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
import torch
torch.set_num_threads(1)
"""
_KEEP = "from indelible.base.allocator import keep_freed_memory; assert keep_freed_memory()\n"
# What a user writes, command line included, in a process of their own.
_LIBRARY = """
import indelible
from indelible.base.progress import silenced
from indelible.cli import main
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
key = indelible.Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
with silenced():
    made = indelible.embed(TinyNet(), stripes(64), key, "vanilla", train={"epochs": 1, "batch_size": 32}, device="cpu")
    indelible.attack(made.model, stripes(64), "ft", epochs=1, batch_size=32, device="cpu")
    indelible.verify(made.model, key, stripes(64))
main(["attack", "--list"])
print()
"""
_FAULTS = """
import resource
big = torch.ones(40_000_000 // 4)  # 40 MB: above what glibc's own moving threshold may ever reach
del big
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.ones(40_000_000 // 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _run(*parts: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + "".join(parts)], cwd=ROOT, env={**kept, "PYTHONPATH": paths},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def plain() -> int:
    """Page faults of forty blocks of 40 MB: some 390,000 in pages of 4 KB."""
    return _run(_FAULTS)


def test_blocks_are_not_mapped_afresh(plain: int) -> None:
    assert plain > 5_000  # pages may have 64 KB
    assert _run(_KEEP, _FAULTS) < plain / 2  # some blocks are mapped before a free one fits: seen are 1 to 5 of 40


def test_a_library_call_leaves_the_process_of_its_caller_alone(plain: int) -> None:
    """Large blocks are mapped afresh after embed(), attack(), verify() and main(), as they were before."""
    assert _run(_LIBRARY, _FAULTS) > 0.8 * plain


def _kept(folder: Path) -> None:
    (folder / "kept").write_text(str(keep_freed_memory.cache_info().currsize), encoding="utf-8")


def test_processes_that_are_started_keep_it(tmp_path: Path) -> None:
    spread(_kept, devices=1, folder=tmp_path)
    assert (tmp_path / "kept").read_text() == "1"


def test_the_command_keeps_it_where_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(indelible.cli, "keep_freed_memory", lambda: asked.append(sys.argv[1]))
    monkeypatch.setattr(indelible.cli, "main", lambda: 0)
    for command in indelible.cli.COMMANDS:
        monkeypatch.setattr(sys, "argv", ["indelible", command, "--list"])
        assert indelible.cli.entry() == 0
    assert asked == ["demo", "embed", "attack", "bench", "analyze"]


def test_a_users_own_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has set glibc's variables keeps them."""
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert not keep_freed_memory.__wrapped__()


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in allocator._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(allocator, "_glibc", lambda: None)
    assert not keep_freed_memory.__wrapped__()
