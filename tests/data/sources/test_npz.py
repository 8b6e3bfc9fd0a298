from pathlib import Path

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data import as_data
from indelible.data.images import Data, ImageData
from indelible.data.sources.npz import npz_parts
from tests.data.makers import labels, pixels


def read_npz(path: Path, classes: list[str] | None = None) -> Data:
    (part,) = npz_parts(path, classes)
    return part()


def test_images_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=pixels(6), labels=np.array(labels(6, 4))[:, None])
    data = read_npz(path)
    assert isinstance(data, ImageData)
    assert torch.equal(data.images, torch.from_numpy(pixels(6)))
    assert data.labels.tolist() == labels(6, 4)
    assert data.name == "set"
    assert read_npz(path, classes=["a", "b", "c", "d"]).classes == ("a", "b", "c", "d")


def test_both_splits_agree_on_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(
        path, x_train=pixels(3, (8, 8, 3)), y_train=[0, 1, 2], x_test=pixels(2, (8, 8, 3)), y_test=[4, 0]
    )
    train, test = (part() for part in npz_parts(path))
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 2], [4, 0])
    assert (len(train.classes), len(test.classes)) == (5, 5)
    assert train.shape == (3, 8, 8)
    with pytest.raises(InputError, match="holds training and test images"):
        as_data(path)


def test_one_named_split(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, x_train=pixels(3, (8, 8)), y_train=[0, 1, 2])
    assert len(read_npz(path)) == 3
    np.savez(path, x_test=pixels(2, (8, 8)), y_test=[0, 1], images=pixels(3, (8, 8)), labels=[0, 1, 2])
    assert len(read_npz(path)) == 2


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=pixels(2), labels=np.array([{}, {}], dtype=object))
    with pytest.raises(DamagedFileError, match=r"array labels of .* cannot be read"):
        read_npz(path)


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=pixels(2), labels=[0, 1])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DamagedFileError, match=r"set\.npz is not a whole \.npz file"):
        read_npz(path)
    with pytest.raises(InputError, match="cannot be opened"):
        read_npz(tmp_path / "gone.npz")
    np.savez(path, pictures=pixels(2))
    with pytest.raises(InputError, match="got pictures"):
        read_npz(path)
    with path.open("wb") as handle:
        np.save(handle, pixels(2))
    with pytest.raises(InputError, match="single array"):
        read_npz(path)
