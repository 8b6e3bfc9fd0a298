"""A store behind a URL: what a local one does, through copies."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.cell_records import do_cell
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from tests.bench.micro import VOLATILE, InlineEngine, cells_of, write_preset


def outcomes(store: Store) -> dict[str, object]:
    return {
        digest: {name: value for name, value in (store.record(digest) or {}).items() if name not in VOLATILE}
        for digest in store.finished()
    }


def test_the_same_records_as_a_local_store(tmp_path: Path) -> None:
    _, cells = cells_of(write_preset(tmp_path))
    cells = [cell for cell in cells if cell.method == "vanilla"]
    local = Store(tmp_path / "local")
    run_cells(Board(cells), local, InlineEngine(), device="cpu")
    place = f"memory://bench-{os.getpid()}"
    for number, cell in enumerate(sorted(cells, key=lambda cell: cell.attack or "")):
        # Every cell on another machine: nothing but the store joins them.
        store = Store(place, scratch=tmp_path / f"machine-{number}")
        assert do_cell(store, cell, device="cpu").state == "done"
    assert outcomes(Store(place, scratch=tmp_path / "another")) == outcomes(local)
    files, root = store.files, store.url
    names = {path.split(f"{cells[0].digest}/")[-1] for path in files.find(f"{root}/runs/{cells[0].digest}")}
    assert {"run.json", "model.safetensors", "verdict.json", "history.jsonl"} <= names
    assert not [name for name in names if name.startswith(("checkpoint", "phase-"))]


def test_a_lost_cell_goes_on_from_its_last_copy(tmp_path: Path) -> None:
    place = f"file://{tmp_path / 'store'}"
    first = Store(place, scratch=tmp_path / "one")
    with suppress(RuntimeError), first.working("cell") as folder:
        (folder / "checkpoint.safetensors").write_text("half way")
        (folder / "key").mkdir()
        (folder / "key" / "key.json").write_text("{}")
        (folder / "history.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n')
        raise RuntimeError("broken")
    second = Store(place, scratch=tmp_path / "two")
    with second.working("cell") as folder:
        assert second.last_row("cell") == {"epoch": 2}
        assert (folder / "checkpoint.safetensors").read_text() == "half way"
        assert (folder / "key" / "key.json").read_text() == "{}"
        (folder / "checkpoint.safetensors").unlink()
        (folder / "run.json").write_text("{}")
    folder = Store(place, scratch=tmp_path / "three").reading("cell")
    assert sorted(path.name for path in folder.iterdir()) == ["history.jsonl", "key", "run.json"]


def test_the_machine_of_a_killed_worker_goes_on_from_its_own_folder(tmp_path: Path) -> None:
    """Nothing was copied when it died; its next worker finds what it left, another machine begins anew."""
    place, scratch = f"file://{tmp_path / 'store'}", tmp_path / "one"
    (scratch / "runs" / "cell").mkdir(parents=True)
    (scratch / "runs" / "cell" / "checkpoint.safetensors").write_text("half way")
    with Store(place, scratch=tmp_path / "two").working("cell") as folder:
        assert list(folder.iterdir()) == []
    with Store(place, scratch=scratch).working("cell") as folder:
        assert (folder / "checkpoint.safetensors").read_text() == "half way"


def test_half_a_run_gives_way_to_what_another_machine_has_finished(tmp_path: Path) -> None:
    place, scratch = f"file://{tmp_path / 'store'}", tmp_path / "one"
    (scratch / "runs" / "cell").mkdir(parents=True)
    (scratch / "runs" / "cell" / "checkpoint.safetensors").write_text("half way")
    with Store(place, scratch=tmp_path / "two").working("cell") as folder:
        (folder / "run.json").write_text("{}")
    folder = Store(place, scratch=scratch).reading("cell")
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_workers_of_one_machine_do_not_do_the_same_cell(tmp_path: Path) -> None:
    place = f"file://{tmp_path / 'store'}"
    one, two = (Store(place, scratch=tmp_path / "scratch") for _ in range(2))
    lock = one.acquire("cell")
    assert lock is not None
    assert two.acquire("cell") is None
    assert two.held("cell")
    lock.release()
    assert not two.held("cell")


def test_records_and_failures(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}")
    assert (store.record("a"), store.failure("a"), store.finished(), store.last_row("a")) == (None, None, set(), None)
    store.keep_failure("a", {"error": "e"})
    assert store.failure("a") == {"error": "e"}
    store.keep_record({"digest": "a", "x": 1})
    assert (store.record("a"), store.failure("a"), store.finished()) == ({"digest": "a", "x": 1}, None, {"a"})
    (tmp_path / "records" / "a.json").write_text("{")
    with pytest.raises(DamagedFileError, match="not JSON"):
        store.record("a")


def test_unknown_protocols() -> None:
    with pytest.raises(InputError, match="cannot be opened"):
        Store("no-such-protocol://x")
