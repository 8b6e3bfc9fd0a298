"""The runner in one process: order, dependencies, reuse, failures, cells that somebody else does."""

from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binom

from indelible.bench.cell_records import Outcome, collect_results, do_cell
from indelible.bench.cells import BenchCell, select
from indelible.bench.runner import Board, State, run_cells
from indelible.bench.store import Store
from indelible.keys.key import Key
from indelible.train.run_folder import Run
from tests.bench.micro import InlineEngine, cells_of, write_preset
from tests.conftest import stripes


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    return write_preset(tmp_path)


def test_everything_once_in_order_and_never_again(preset: Path, tmp_path: Path) -> None:
    found, cells = cells_of(preset)
    store = Store(tmp_path / "store")
    told: list[tuple[str, State]] = []
    board = Board(cells, tell=lambda cell, state: told.append((cell.name, state)))
    engine = InlineEngine()
    run_cells(board, store, engine, device="cpu")
    # Fine-tuning of a finished model goes before the next model.
    names = {cell.digest: f"{cell.method}/{cell.attack or 'before'}" for cell in cells}
    assert [names[digest] for digest in engine.done] == ["vanilla/before", "vanilla/ft", "app/before", "app/ft"]
    assert set(board.states.values()) == {"done"}
    assert [state for name, state in told if name.endswith("app/ft/0")] == ["waiting", "running", "done"]

    document = collect_results(found, cells, store)
    assert [(row["method"], row["attack"]) for row in document["cells"]] == [
        ("vanilla", None), ("vanilla", "ft"), ("app", None), ("app", "ft"),
    ]  # fmt: skip
    first, second = document["cells"][:2]
    assert second["needs"] == first["digest"]
    assert second["inputs"]["model_digest"] == first["measured"]["model_digest"]
    assert first["reported"] == {"ba": 0.9386, "wsr": 0.9956}
    assert second["reported"] == {"ba": 0.918, "wsr": 0.5678}
    assert second["command"].endswith("--only tests.conftest:TinyNet/content/vanilla/ft/0")
    assert second["images"] == 2 * 32  # two epochs of a fifth of 160 images
    assert second["images_per_second"] == pytest.approx(2 * 32 / second["seconds"])
    test = stripes(80, seed=1)
    samples = Key.load(store.reading(first["digest"]) / "key").samples(test, purpose="verify")
    for row in (first, second):
        measured, model = row["measured"], Run.load(store.reading(row["digest"])).model().eval()
        assert measured["trials"] == len(samples.images) == 60  # a quarter of the test images is of the target class
        hits = int((model(samples.images.float() / 255).argmax(1) == 0).sum())
        assert (measured["hits"], measured["wsr"]) == (hits, hits / 60)
        right = int((model(test.images.float() / 255).argmax(1) == test.labels).sum())
        assert measured["ba"] == right / 80
        # A tenth of alpha = 1e-6 pays for the chance that the limit of the decoys' rate is too low.
        tail = float(binom.sf(measured["hits"] - 1, 60, measured["null_rate"]))
        assert measured["p_value"] == pytest.approx(min(1.0, tail + 1e-7), rel=1e-6)
    assert [row["epoch"] for row in first["history"]] == [1, 2]

    again = InlineEngine()
    run_cells(Board(cells), store, again)
    assert again.done == []


def test_another_preset_with_other_labels_finds_the_same_model(preset: Path, tmp_path: Path) -> None:
    _, cells = cells_of(preset)
    store = Store(tmp_path / "store")
    run_cells(Board(select(cells, "*/app/*")), store, InlineEngine(), device="cpu")
    other = tmp_path / "other"
    other.mkdir()
    renamed, theirs = cells_of(write_preset(other, change=("[methods.app]", '[methods.ours]\nmethod = "app"')))
    engine = InlineEngine()
    run_cells(Board(select(theirs, "*/ours/*")), store, engine, device="cpu")
    assert engine.done == []
    assert {row["method"] for row in collect_results(renamed, theirs, store)["cells"]} == {"ours"}


def test_title_and_attacks_of_the_preset_are_in_records_and_once_in_results(preset: Path, tmp_path: Path) -> None:
    found, cells = cells_of(preset)
    store = Store(tmp_path / "store")
    chosen = select(cells, "*/vanilla/before/*")
    run_cells(Board(chosen), store, InlineEngine(), device="cpu")
    record = store.record(chosen[0].digest)
    assert record is not None
    assert (record["title"], record["attacks"]) == ("Micro", ["ft"])
    document = collect_results(found, cells, store)
    assert (document["title"], document["attacks"]) == ("Micro", ["ft"])
    assert not {"title", "attacks"} & document["cells"][0].keys()


def test_a_failed_model_blocks_its_attacks_and_nothing_else(preset: Path, tmp_path: Path) -> None:
    _, cells = cells_of(preset)
    store = Store(tmp_path / "store")
    broken = next(cell for cell in cells if cell.method == "vanilla" and cell.attack is None)

    def hook(cell: BenchCell) -> Outcome | None:
        if cell.digest != broken.digest:
            return None
        spoilt = replace(cell, settings={**cell.settings, "architecture": "no-such-network"})
        return do_cell(store, spoilt, device="cpu")

    board = Board(cells)
    run_cells(board, store, InlineEngine(hook), device="cpu")
    states = {(cell.method, cell.attack): board.states[cell.digest] for cell in cells}
    assert states == {
        ("vanilla", None): "failed", ("vanilla", "ft"): "blocked", ("app", None): "done", ("app", "ft"): "done",
    }  # fmt: skip
    assert "no-such-network" in board.errors[broken.digest]
    failure = store.failure(broken.digest)
    assert failure is not None
    assert "no-such-network" in failure["error"]
    # The next run tries again, and success clears the note.
    run_cells(Board(cells), store, InlineEngine(), device="cpu")
    assert store.failure(broken.digest) is None
    assert store.record(broken.digest) is not None


def test_a_lost_worker_is_replaced_twice_then_given_up(preset: Path, tmp_path: Path) -> None:
    _, cells = cells_of(preset)
    model = [cell for cell in cells if cell.method == "vanilla" and cell.attack is None]
    store = Store(tmp_path / "store")

    def always(_cell: BenchCell) -> Outcome | None:
        raise ChildProcessError("killed")

    lost = InlineEngine(always)
    board = Board(model)
    run_cells(board, store, lost)
    assert len(lost.done) == 3
    assert board.errors[model[0].digest] == "given up after 3 attempts: killed"
    calls = []

    def once(cell: BenchCell) -> Outcome | None:
        calls.append(cell.digest)
        if len(calls) == 1:
            raise ChildProcessError
        return None

    board = Board(model)
    run_cells(board, store, InlineEngine(once), device="cpu")
    assert board.count("done") == 1


def test_a_cell_that_somebody_else_does_is_waited_for(
    preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indelible.bench.runner._LOOK_AGAIN_SECONDS", 0.01)
    _, cells = cells_of(preset)
    model = next(cell for cell in cells if cell.method == "vanilla" and cell.attack is None)
    store = Store(tmp_path / "store")
    lock = store.acquire(model.digest)
    assert lock is not None
    assert do_cell(store, model).state == "busy"
    seen = []

    def tick() -> None:
        seen.append(board.states[model.digest])
        if len(seen) == 3:
            assert lock is not None
            lock.release()  # the other one died: the cell is taken over

    board = Board([model], tick=tick)
    run_cells(board, store, InlineEngine(), device="cpu")
    assert seen[:3] == ["elsewhere"] * 3
    assert board.states[model.digest] == "done"
