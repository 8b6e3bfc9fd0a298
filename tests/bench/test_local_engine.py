"""The local engine for real: processes, SIGKILL at random moments, two runners at once."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indelible.base.errors import InputError
from indelible.bench.engines import LocalEngine, default_threads, worker_environment
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from tests.bench.micro import OTHER_ATTACKS, VOLATILE, InlineEngine, cells_of, write_preset
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def outcomes(store: Store) -> dict[str, Mapping[str, Any]]:
    """Return all records, without what says how long they took."""
    records = {digest: store.record(digest) or {} for digest in store.finished()}
    return {
        digest: {name: value for name, value in record.items() if name not in VOLATILE}
        for digest, record in records.items()
    }


def start(preset: Path, store: Path, *more: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "indelible", "bench", "run", str(preset), "--store", str(store), "--json", *more]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [*command, "--device", "cpu"], cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def written(store: Path) -> set[tuple[str, int]]:
    """Return every file of a store with the time of its last change."""
    found = set()
    for path in store.rglob("*"):
        with suppress(FileNotFoundError):  # gone since it was listed
            found.add((str(path), path.stat().st_mtime_ns))
    return found


@pytest.mark.slow
def test_killed_at_five_random_moments_the_records_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    preset = write_preset(tmp_path, extra=OTHER_ATTACKS, images=320, change=("[methods.vanilla]\n", ""))
    _, cells = cells_of(preset)
    whole = Store(tmp_path / "whole")
    run_cells(Board(cells), whole, InlineEngine(), device="cpu")
    place = tmp_path / "store"
    chance = random.Random(6)
    killed = 0
    while killed < 5:
        process = start(preset, place, "--workers", "1", "--threads", "1")
        known = written(place)
        seen, wanted = set(known), len(known) + chance.randint(2, 12)
        # It has got to work, and then some: counted in what it writes, since a second is long or short.
        while len(seen) < wanted and process.poll() is None:
            seen |= written(place)
            time.sleep(0.005)
        killed += 1
        if process.poll() is not None:  # over before it could be killed five times: start over
            shutil.rmtree(place)
            killed = 0
        process.send_signal(signal.SIGKILL)
        process.communicate()
    last = start(preset, place, "--workers", "1", "--threads", "1")
    said, errors = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, errors.decode()
    assert json.loads(said)["done"] == len(cells)
    assert outcomes(Store(place)) == outcomes(whole)
    leftovers = [path for path in place.rglob("*") if path.name.startswith(("checkpoint", "phase-"))]
    assert leftovers == []


@pytest.mark.slow
def test_two_runners_do_each_cell_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = write_preset(tmp_path, change=("conftest:TinyNet", "bench.micro:LoggedNet"))
    _, cells = cells_of(preset)
    place, log = tmp_path / "store", tmp_path / "log"
    monkeypatch.setenv("MICRO_LOG", str(log))
    runners = [start(preset, place, "--workers", "1", "--threads", "1") for _ in range(2)]
    for process in runners:
        said, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors.decode()
        assert json.loads(said)["done"] == len(cells)
    assert Store(place).finished() == {cell.digest for cell in cells}
    assert not list((place / "failures").glob("*"))
    # An attack builds its network twice: to work on, and to be verified. An embedding ends with its verdict.
    builders = log.read_text().split()
    assert len(builders) == sum(1 + (cell.attack is not None) for cell in cells)


def test_threads_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indelible.bench.engines.cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [default_threads(workers) for workers in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert LocalEngine(workers=2, threads=3).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert default_threads(2) == 1
    assert worker_environment(2)["MKL_NUM_THREADS"] == "2"
    with pytest.raises(InputError, match="must be positive"):
        LocalEngine(workers=0)
