"""History: JSON lines that match the checkpoint."""

from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError
from indelible.train.history import read_history, write_history


def test_rows_are_written_and_rows_beyond_the_checkpoint_dropped(tmp_path: Path) -> None:
    rows = [{"phase": "a", "epoch": step, "step": step, "loss": 1.0 / step} for step in (1, 2, 3)]
    write_history(tmp_path, rows)
    assert [row["step"] for row in read_history(tmp_path)] == [1, 2, 3]
    write_history(tmp_path, [{"step": 0}, *rows[:2]])
    assert [row["step"] for row in read_history(tmp_path)] == [0, 1, 2]
    assert read_history(tmp_path / "nowhere") == []


def test_not_a_number_is_null(tmp_path: Path) -> None:
    write_history(tmp_path, [{"step": 1, "loss": float("nan")}])
    assert read_history(tmp_path) == [{"step": 1, "loss": None}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"epoch": 2, "lo', "line 2 is not JSON"),
        (b"\xff\xfe", "line 2 is not JSON"),
        (b"[1, 2]", "line 2 is not a row of a history"),
        (b'{"epoch": "two"}', "line 2 is not a row of a history"),
    ],
)
def test_a_damaged_line_is_named(line: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b'{"epoch": 1}\n' + line + b"\n")
    with pytest.raises(DamagedFileError, match=f"history.jsonl: {said}.* Restore it from a copy, or delete the file"):
        read_history(tmp_path)
