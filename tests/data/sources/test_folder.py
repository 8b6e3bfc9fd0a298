from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data import as_data
from indelible.data.images import Data, ImageData, StreamData
from indelible.data.sources.folder import folder_parts
from tests.data.makers import pixels, write_picture


def read_folder(path: Path, **options: Any) -> Data:
    (part,) = folder_parts(path, **options)
    return part()


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for label, name in enumerate(["dog", "cat", "newt"]):
        for number in range(4):
            write_picture(root / name / f"{number}.png", pixels(1, (8, 8, 3), 10 * label + number)[0])
    (root / "cat" / "notes.txt").write_text("not a picture")
    (root / ".hidden").mkdir()
    return root


def test_classes_are_folders_in_sorted_order(plain: Path) -> None:
    data = read_folder(plain)
    assert isinstance(data, ImageData)
    assert data.classes == ("cat", "dog", "newt")
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    expected = torch.from_numpy(pixels(1, (8, 8, 3), 12)[0]).permute(2, 0, 1)
    assert torch.equal(data.images[2], expected), "the third picture of 'cat'"
    assert data.name == "pets"


def test_class_list_chooses_and_orders(plain: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("# two of them\nnewt\n\ndog\n")
    for data in (read_folder(plain, classes=listed), read_folder(plain, classes=["newt", "dog"])):
        assert data.classes == ("newt", "dog")
        assert data.labels.tolist() == [0] * 4 + [1] * 4
    (plain / "classes.txt").write_text("dog\ncat\n")
    assert read_folder(plain, per_class=(3, 1)).labels.tolist() == [0] * 3 + [1] * 3


@pytest.mark.parametrize("name", ["test", "val"])
def test_splits_share_the_classes_of_train(tmp_path: Path, name: str) -> None:
    for split, label in (("train", "a"), ("train", "b"), (name, "b")):
        write_picture(tmp_path / split / label / "x.JPEG", np.full((9, 6, 3), 100, np.uint8))
    train, test = (part() for part in folder_parts(tmp_path, size=4))
    assert (train.classes, test.classes) == (("a", "b"), ("a", "b"))
    assert test.labels.tolist() == [1]
    assert train.shape == (3, 4, 4)
    with pytest.raises(InputError, match=r"holds training and test images\. Read both with indelible\.load"):
        as_data(tmp_path)


def test_stream_equals_memory(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = read_folder(plain, size=6)
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", "0")
    stream = read_folder(plain, size=6)
    assert isinstance(stream, StreamData)
    assert stream.digest() == memory.digest()
    write_picture(plain / "cat" / "0.png", pixels(1, (8, 8, 3), 77)[0])
    assert read_folder(plain, size=6).digest() != memory.digest()


def test_errors_name_what_is_wrong(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="class 'bird' has no pictures"):
        read_folder(plain, classes=["cat", "bird"])
    with pytest.raises(InputError, match="not the name of a folder"):
        read_folder(plain, classes=["../pets/cat"])
    with pytest.raises(InputError, match="at least 1 pixel"):
        read_folder(plain, size=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no class folders"):
        read_folder(tmp_path / "empty")
    (tmp_path / "twice.txt").write_text("cat\ncat\n")
    with pytest.raises(InputError, match="each class once"):
        read_folder(plain, classes=tmp_path / "twice.txt")
    with pytest.raises(DamagedFileError, match=r"gone\.txt cannot be read"):
        read_folder(plain, classes=str(tmp_path / "gone.txt"))
    write_picture(plain / "dog" / "9.png", pixels(1, (8, 9, 3))[0])
    with pytest.raises(InputError, match=r"9\.png has the shape \(3, 8, 9\)"):
        read_folder(plain)
