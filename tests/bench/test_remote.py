"""A store behind a URL: what a local one does, through copies."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.remote import RemoteStore, file_system
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import LocalStore, Store, open_store
from indelible.bench.work import VOLATILE, do_cell
from tests.bench.micro import InlineEngine, cells_of, write_preset
from tests.waiting import until


def outcomes(store: Store) -> dict[str, object]:
    return {
        digest: {name: value for name, value in (store.record(digest) or {}).items() if name not in VOLATILE}
        for digest in store.finished()
    }


def test_the_same_records_as_a_local_store(tmp_path: Path) -> None:
    _, cells = cells_of(write_preset(tmp_path))
    cells = [cell for cell in cells if cell.method == "vanilla"]
    local = LocalStore(tmp_path / "local")
    run_cells(Board(cells), local, InlineEngine(), device="cpu")
    place = f"memory://bench-{os.getpid()}"
    for number, cell in enumerate(sorted(cells, key=lambda cell: cell.attack or "")):
        # Every cell on another machine: nothing but the store joins them.
        store = RemoteStore(place, scratch=tmp_path / f"machine-{number}")
        assert do_cell(store, cell, device="cpu").state == "done"
    assert outcomes(RemoteStore(place, scratch=tmp_path / "another")) == outcomes(local)
    files, root = file_system(place)
    names = {path.split(f"{cells[0].digest}/")[-1] for path in files.find(f"{root}/runs/{cells[0].digest}")}
    assert {"run.json", "model.safetensors", "verdict.json", "history.jsonl"} <= names
    assert not [name for name in names if name.startswith(("checkpoint", "phase-"))]


def test_a_lost_cell_goes_on_from_its_last_copy(tmp_path: Path) -> None:
    place = f"file://{tmp_path / 'store'}"
    first = RemoteStore(place, scratch=tmp_path / "one")
    with suppress(RuntimeError), first.working("cell") as folder:
        (folder / "checkpoint.safetensors").write_text("half way")
        (folder / "key").mkdir()
        (folder / "key" / "key.json").write_text("{}")
        (folder / "history.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n')
        raise RuntimeError("broken")
    second = RemoteStore(place, scratch=tmp_path / "two")
    assert second.last_row("cell") == {"epoch": 2}
    with second.working("cell") as folder:
        assert (folder / "checkpoint.safetensors").read_text() == "half way"
        assert (folder / "key" / "key.json").read_text() == "{}"
        (folder / "checkpoint.safetensors").unlink()
        (folder / "run.json").write_text("{}")
    with RemoteStore(place, scratch=tmp_path / "three").reading("cell") as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["history.jsonl", "key", "run.json"]


def test_a_cell_under_way_is_copied_now_and_then(tmp_path: Path) -> None:
    place = f"file://{tmp_path / 'store'}"
    store = RemoteStore(place, scratch=tmp_path / "one", copy_seconds=0.05)
    with store.working("cell") as folder:
        (folder / "checkpoint.safetensors").write_text("1")
        copied = tmp_path / "store" / "runs" / "cell" / "checkpoint.safetensors"
        assert until(copied.exists)
        assert copied.read_text() == "1"


def test_records_and_failures(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
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
        open_store("no-such-protocol://x")
