"""A store behind a URL: what a local one does, through copies."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.cell_records import do_cell
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from tests.bench.micro import VOLATILE, InlineEngine, cells_of, write_preset
from tests.report.results import fill_store, make_cell


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
    names = {path.split(f"{cells[0].digest}/")[-1] for path in files.find(f"{root}/cells/{cells[0].digest}")}
    assert {"run.json", "model.safetensors", "split.safetensors"} <= names
    assert not [name for name in names if name.startswith(("checkpoint", "phase-", "history"))]


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
    (scratch / "cells" / "cell").mkdir(parents=True)
    (scratch / "cells" / "cell" / "checkpoint.safetensors").write_text("half way")
    with Store(place, scratch=tmp_path / "two").working("cell") as folder:
        assert list(folder.iterdir()) == []
    with Store(place, scratch=scratch).working("cell") as folder:
        assert (folder / "checkpoint.safetensors").read_text() == "half way"


def test_half_a_run_gives_way_to_what_another_machine_has_finished(tmp_path: Path) -> None:
    place, scratch = f"file://{tmp_path / 'store'}", tmp_path / "one"
    (scratch / "cells" / "cell").mkdir(parents=True)
    (scratch / "cells" / "cell" / "checkpoint.safetensors").write_text("half way")
    with Store(place, scratch=tmp_path / "two").working("cell") as folder:
        (folder / "run.json").write_text("{}")
    folder = Store(place, scratch=scratch).reading("cell")
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_what_says_that_a_cell_is_finished_is_copied_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that dies while it copies leaves a cell that is not finished."""
    store = Store(f"file://{tmp_path / 'store'}", scratch=tmp_path / "one")
    copied: list[str] = []
    put = store.files.put_file

    def noted(path: str, target: str) -> None:
        copied.append(Path(path).name)
        put(path, target)

    monkeypatch.setattr(store.files, "put_file", noted)
    with store.working("cell") as folder:
        for name in ("run.json", "split.safetensors", "key/key.json", "model.safetensors"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("{}")
    assert sorted(copied) == ["key.json", "model.safetensors", "run.json", "split.safetensors"]
    assert copied[-1] == "run.json"


def test_a_cell_that_was_finished_but_not_copied_is_copied_and_not_done_again(tmp_path: Path) -> None:
    cell = next(cell for cell in cells_of(write_preset(tmp_path))[1] if cell.needs is None)
    place, scratch = f"file://{tmp_path / 'store'}", tmp_path / "one"
    assert do_cell(Store(place, scratch=scratch), cell, device="cpu").state == "done"
    shutil.rmtree(tmp_path / "store" / "cells")
    weights = scratch / "cells" / cell.digest / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    again = Store(place, scratch=scratch)
    assert again.finished() == set()
    assert do_cell(again, cell, device="cpu").state == "done"
    assert (again.finished(), weights.stat().st_mtime_ns) == ({cell.digest}, stamp)


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
    store = Store(f"file://{tmp_path}", scratch=tmp_path / "scratch")
    assert (store.record("0"), store.failure("0"), store.finished(), store.last_row("0")) == (None, None, set(), None)
    store.keep_failure("0", {"error": "e"})
    assert store.failure("0") == {"error": "e"}
    with store.working("0"):
        fill_store(store.root, [make_cell("content", "app", "ft") | {"digest": "0"}])
    assert (store.failure("0"), store.finished(), store.records()) == (None, {"0"}, [store.record("0")])
    assert (store.record("0") or {})["measured"]["owned"] is True
    (tmp_path / "cells" / "0" / "run.json").write_text("{")
    with pytest.raises(DamagedFileError, match="not JSON"):
        store.record("0")


def test_unknown_protocols() -> None:
    with pytest.raises(InputError, match="cannot be opened"):
        Store("no-such-protocol://x")
