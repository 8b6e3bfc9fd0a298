"""History: JSON lines that match the checkpoint, and TensorBoard when it is installed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import pytest

from indelible.base.errors import DamagedFileError
from indelible.train.history import read_history, show_in_tensorboard, write_history


class Writer:
    """Stands for TensorBoard's SummaryWriter."""

    made: ClassVar[list["Writer"]] = []

    def __init__(self, folder: str) -> None:
        self.folder, self.scalars, self.closed = folder, list[tuple[str, float, int]](), False
        Writer.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))


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


def test_tensorboard_when_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    show_in_tensorboard(tmp_path, {"phase": "embedding", "epoch": 2, "step": 10, "loss": 0.5, "ba": 0.9})
    assert Writer.made[-1].folder == str(tmp_path / "tensorboard")
    assert Writer.made[-1].scalars == [("loss", 0.5, 10), ("ba", 0.9, 10)]
    assert Writer.made[-1].closed
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    show_in_tensorboard(tmp_path, {"step": 1})
    assert len(Writer.made) == 1
