"""Locks: one owner at a time, freed by death."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from indelible.base.errors import InputError, StorageError
from indelible.bench.locks import is_locked, try_lock, working_on
from tests.waiting import PATIENCE, until


def test_a_file_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "cell"
    assert not is_locked(path)
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    assert is_locked(path)
    first.release()
    first.release()  # twice does no harm
    assert not is_locked(path)
    second = try_lock(path)
    assert second is not None
    second.release()


def _hold(path: str) -> None:
    lock = try_lock(Path(path))
    Path(path + ".taken").touch()
    time.sleep(PATIENCE)
    assert lock is not None


def test_a_killed_owner_frees_its_file_lock(tmp_path: Path) -> None:
    path = tmp_path / "cell"
    owner = multiprocessing.get_context("fork").Process(target=_hold, args=(str(path),))
    owner.start()
    assert until(Path(f"{path}.taken").exists)
    assert is_locked(path)
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert not is_locked(path)


def test_a_removed_lock_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process opens the file, its owner removes it: the lock on the orphan must not count."""
    path = tmp_path / "run" / ".lock"
    first = try_lock(path)
    assert first is not None
    opened: list[int] = []
    owner = first
    real = os.open

    def slow(place: Any, *rest: Any) -> int:
        handle = real(place, *rest)
        if not opened:  # between opening and locking, the owner ends and removes file and folder
            path.unlink()
            owner.release()
            path.parent.rmdir()
        opened.append(handle)
        return handle

    monkeypatch.setattr(os, "open", slow)
    second = try_lock(path)
    assert second is not None
    assert len(opened) == 2
    assert is_locked(path)
    second.release()


def test_a_run_folder_has_one_worker_and_is_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "app"
    with working_on(folder):
        with pytest.raises(InputError, match=f"another command works on {folder} at this moment"), working_on(folder):
            pass
        assert is_locked(folder / ".lock")
    assert not folder.exists()
    folder.mkdir()
    (folder / "run.json").touch()
    with working_on(folder):
        pass
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    with (
        pytest.raises(StorageError, match=r"cannot write into .*Choose another folder"),
        working_on(folder / "run.json"),
    ):
        pass


def test_the_lock_of_a_killed_command_holds_nobody_up(tmp_path: Path) -> None:
    owner = multiprocessing.get_context("fork").Process(target=_hold, args=(str(tmp_path / ".lock"),))
    owner.start()
    assert until((tmp_path / ".lock.taken").exists)
    with pytest.raises(InputError, match="another command"), working_on(tmp_path):
        pass
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert (tmp_path / ".lock").exists()
    with working_on(tmp_path):
        pass
