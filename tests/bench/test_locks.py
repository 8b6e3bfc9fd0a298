"""Locks: one owner at a time, freed by death; leases against a hand-turned clock."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from indelible.base.errors import InputError, StorageError
from indelible.bench.locks import FileLock, Leases, LostLeaseError, create, working_on
from indelible.bench.remote import file_system
from tests.waiting import PATIENCE, until


def test_a_file_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "cell"
    assert not FileLock.held(path)
    first = FileLock.acquire(path)
    assert first is not None
    assert FileLock.acquire(path) is None
    assert FileLock.held(path)
    first.check()
    first.release()
    first.release()  # twice does no harm
    assert not FileLock.held(path)
    second = FileLock.acquire(path)
    assert second is not None
    second.release()


def _hold(path: str) -> None:
    FileLock.acquire(Path(path))
    Path(path + ".taken").touch()
    time.sleep(PATIENCE)


def test_a_killed_owner_frees_its_file_lock(tmp_path: Path) -> None:
    path = tmp_path / "cell"
    owner = multiprocessing.get_context("fork").Process(target=_hold, args=(str(path),))
    owner.start()
    assert until(Path(f"{path}.taken").exists)
    assert FileLock.held(path)
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert not FileLock.held(path)


def test_a_removed_lock_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process opens the file, its owner removes it: the lock on the orphan must not count."""
    path = tmp_path / "run" / ".lock"
    first = FileLock.acquire(path)
    assert first is not None
    opened: list[int] = []
    real = os.open

    def slow(place: Any, *rest: Any) -> int:
        handle = real(place, *rest)
        if not opened:  # between opening and locking, the owner ends and removes file and folder
            first.release(remove=True)
            path.parent.rmdir()
        opened.append(handle)
        return handle

    monkeypatch.setattr(os, "open", slow)
    second = FileLock.acquire(path)
    assert second is not None
    assert len(opened) == 2
    assert FileLock.held(path)
    second.release(remove=True)
    assert not path.exists()


def test_a_run_folder_has_one_worker_and_is_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "app"
    with working_on(folder):
        with pytest.raises(InputError, match=f"another command works on {folder} at this moment"), working_on(folder):
            pass
        assert FileLock.held(folder / ".lock")
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
    deadline = time.monotonic() + 30
    while not (tmp_path / ".lock.taken").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(InputError, match="another command"), working_on(tmp_path):
        pass
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert (tmp_path / ".lock").exists()
    with working_on(tmp_path):
        pass


class Clock:
    """A clock that a test turns by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    return file_system(str(tmp_path) if request.param == "file" else f"memory://{tmp_path.name}-{os.getpid()}")


def watcher(place: tuple[Any, str], clock: Clock, patience: float = 600.0) -> Leases:
    # Half a minute of real time would pass before a thread beats by itself: the tests beat by hand.
    return Leases(*place, patience=patience, clock=clock)


def test_a_lease_has_one_owner_and_can_be_given_back(place: tuple[Any, str]) -> None:
    clock = Clock()
    one, two = watcher(place, clock), watcher(place, clock)
    assert not two.held("cell")
    lease = one.acquire("cell")
    assert lease is not None
    assert two.held("cell")
    assert two.acquire("cell") is None
    lease.check()
    lease.release()
    assert not two.held("cell")
    again = two.acquire("cell")
    assert again is not None
    assert again.number == 2
    again.release()


def test_a_lease_whose_beat_stands_still_is_taken_over_by_one(place: tuple[Any, str]) -> None:
    clock = Clock()
    owner, one, two = (watcher(place, clock) for _ in range(3))
    lease = owner.acquire("cell")
    assert lease is not None
    assert one.acquire("cell") is None  # first seen at 0
    clock.now = 599.0
    assert one.acquire("cell") is None
    lease.renew()  # lives
    clock.now = 700.0
    assert one.acquire("cell") is None  # the new beat is first seen now
    assert two.acquire("cell") is None
    clock.now = 1299.0
    assert one.held("cell")
    clock.now = 1300.0
    assert not one.held("cell")
    assert two.dead("cell") == one.dead("cell") == (1, lease.owner, 1)
    taken = one.acquire("cell")
    assert taken is not None
    assert two.acquire("cell") is None
    assert two.dead("cell") is None
    with pytest.raises(LostLeaseError, match="did not show"):
        lease.check()  # silent for too long, whether or not it knows of the other
    lease.renew()
    assert lease.lost
    lease.release()
    assert one.latest("cell")[1] == {"owner": taken.owner, "beat": 0}  # the loser's release changes nothing
    taken.release()


def test_what_one_watcher_has_seen_dead_another_may_take(place: tuple[Any, str]) -> None:
    clock = Clock()
    owner, runner = watcher(place, clock), watcher(place, clock)
    lease = owner.acquire("cell")
    assert lease is not None
    assert runner.held("cell")
    clock.now = 600.0
    sign = runner.dead("cell")
    assert sign is not None
    worker = watcher(place, clock)
    assert worker.acquire("cell") is None
    taken = worker.acquire("cell", dead=list(sign))
    assert taken is not None
    # The sign is of the dead owner, and of no other.
    assert watcher(place, clock).acquire("cell", dead=sign) is None
    taken.release()
    lease.release()


def test_a_thread_keeps_a_lease_alive(tmp_path: Path) -> None:
    owner = Leases(*file_system(str(tmp_path)), patience=0.6)
    other = Leases(*file_system(str(tmp_path)), patience=0.6)
    lease = owner.acquire("cell")
    assert lease is not None

    def beaten() -> bool:
        other.held("cell")  # another runner looks on
        return lease.beat >= 3

    assert until(beaten, every=0.05)
    lease.release()
    assert not other.held("cell")


def test_creation_is_exclusive(place: tuple[Any, str]) -> None:
    files, folder = place
    files.makedirs(folder, exist_ok=True)
    create(files, f"{folder}/once", b"1")
    with pytest.raises(FileExistsError):
        create(files, f"{folder}/once", b"2")
    assert files.cat_file(f"{folder}/once") == b"1"
