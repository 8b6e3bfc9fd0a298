"""Freed memory stays in the process: seen from outside, by the page faults of a process of its own."""

import os
import platform
import subprocess
import sys

import pytest

from indelible.train.allocator import keep_freed_memory

_FAULTS = """
import resource, sys
from indelible.train.allocator import keep_freed_memory
import torch
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)
big = torch.ones(40_000_000 // 4)  # 40 MB: above what glibc's own moving threshold may ever reach
del big
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.ones(40_000_000 // 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _run(mode: str, **variables: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, mode], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these thresholds")
def test_blocks_are_not_mapped_afresh() -> None:
    """Forty blocks of 40 MB in pages of 4 KB are some 400,000 faults; large pages make them fewer, never none."""
    plain, kept = _run("plain"), _run("keep")
    assert plain > 50
    assert kept < plain / 2  # some blocks are mapped before a free one fits: seen are 1 to 5 of 40


def test_a_users_own_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has set glibc's variables keeps them."""
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert not keep_freed_memory.__wrapped__()
