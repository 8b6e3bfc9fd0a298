"""What a record keeps of a verdict; a cell that is killed while its verdict is made."""

from pathlib import Path

import pytest

from indelible.bench import make_run_folder
from indelible.bench.cell_records import do_cell
from indelible.bench.cells import select
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from tests.bench.micro import VOLATILE, InlineEngine, cells_of, write_preset

_PICTURE = {"table", "drawn", "counts", "binding"}


@pytest.mark.parametrize("codebook", [True, False], ids=["codebook", "one class"])
def test_a_record_has_what_the_picture_of_a_codebook_needs(tmp_path: Path, codebook: bool) -> None:
    path = write_preset(tmp_path, change=("target = 0", "marks = 12" if codebook else "target = 1"))
    cells = select(cells_of(path)[1], "*/app/*")
    store = Store(tmp_path / "store")
    run_cells(Board(cells), store, InlineEngine(), device="cpu")
    for cell in cells:
        record = store.record(cell.digest)
        assert record is not None
        measured = record["measured"]
        if not codebook:
            assert not _PICTURE & measured.keys()  # records of other keys stay as they were
            continue
        assert measured.keys() >= _PICTURE
        # 80 test images of four classes, bars in turn: 20 of each class, which do not count for a mark of that class.
        assert [len(row) for row in measured["table"]] == [4] * 12
        assert measured["hits"] == sum(
            row[c] for row, c in zip(measured["table"], measured["drawn"], strict=True)
        )  # fmt: skip
        assert measured["trials"] == 12 * 60
        assert measured["counts"]["marks"] == 12
        assert measured["counts"]["carriers"] == 80
        assert measured["binding"] == "auditor"


def test_a_cell_killed_while_its_verdict_is_made_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, attack = sorted(select(cells_of(write_preset(tmp_path))[1], "*/vanilla/*"), key=lambda cell: cell.verb)[::-1]
    straight, broken = Store(tmp_path / "straight"), Store(tmp_path / "broken")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for store in (straight, broken):
        assert do_cell(store, model, device="cpu").state == "done"
    with monkeypatch.context() as patch:
        patch.setattr(make_run_folder, "verify", killed)
        with pytest.raises(KeyboardInterrupt):
            do_cell(broken, attack, device="cpu")
    assert broken.finished() == {model.digest}
    for store in (straight, broken):
        assert do_cell(store, attack, device="cpu").state == "done"
    ours, theirs = (
        {name: value for name, value in (store.record(attack.digest) or {}).items() if name not in VOLATILE}
        for store in (straight, broken)
    )
    assert ours == theirs
    weights = [store.root / "cells" / attack.digest / "model.safetensors" for store in (straight, broken)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
