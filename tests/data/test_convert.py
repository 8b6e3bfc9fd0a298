from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from indelible.base.errors import InputError
from indelible.data.convert import as_data, as_uint8
from indelible.data.images import ImageData
from tests.data.makers import labels, pixels, write_picture

IMAGES, LABELS = torch.from_numpy(pixels(6)), torch.tensor(labels(6, 4))
WANTED = ImageData(IMAGES, LABELS, ("0", "1", "2", "3"), "data")


@pytest.mark.parametrize(
    "pair",
    [
        (IMAGES, LABELS),
        [IMAGES, LABELS],
        (IMAGES.numpy(), LABELS.numpy()),
        (IMAGES, LABELS.tolist()),
        (IMAGES, LABELS.to(torch.int16)),
        (IMAGES.float() / 255, LABELS),
        (IMAGES.double().numpy() / 255, LABELS),
        (IMAGES.permute(0, 2, 3, 1), LABELS),
        (IMAGES.permute(0, 2, 3, 1).numpy(), LABELS),
        (IMAGES.flip(0).numpy()[::-1], LABELS),
    ],
)
def test_every_kind_of_pair(pair: Any) -> None:
    data = as_data(pair, classes=4)
    assert isinstance(data, ImageData)
    assert data.digest() == WANTED.digest()


def test_own_objects_pass_and_datasets_are_read() -> None:
    assert as_data(WANTED) is WANTED
    read = as_data(TensorDataset(IMAGES, LABELS), classes=4)
    assert read.digest() == WANTED.digest()
    assert read.name == "TensorDataset"


def test_paths(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=IMAGES.numpy(), labels=LABELS.numpy())
    assert as_data(tmp_path / "set.npz", classes=4).digest() == WANTED.digest()
    for number, (image, label) in enumerate(zip(IMAGES, LABELS.tolist(), strict=True)):
        write_picture(tmp_path / "folder" / str(label) / f"{number}.png", image.permute(1, 2, 0).numpy())
    folder = as_data(str(tmp_path / "folder"))
    assert folder.labels.tolist() == sorted(LABELS.tolist())
    assert folder.subset(torch.tensor([0])).labels.tolist() == [0]
    for wrong in (tmp_path / "nowhere", __file__):
        with pytest.raises(InputError, match=r"neither a folder of images nor an \.npz file"):
            as_data(wrong)


def test_classes_come_from_the_labels_unless_given() -> None:
    assert as_data((IMAGES, LABELS)).classes == tuple(str(n) for n in range(int(LABELS.max()) + 1))
    assert as_data((IMAGES, LABELS), classes=["a", "b", "c", "d"]).classes == ("a", "b", "c", "d")


def test_grey_images_and_rounding() -> None:
    assert as_uint8(torch.zeros(2, 5, 5)).shape == (2, 1, 5, 5)
    assert as_uint8(torch.tensor([[[[0.0, 0.4999 / 255, 0.5001 / 255, 1.0]]]])).tolist() == [[[[0, 0, 1, 255]]]]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((IMAGES.float(), LABELS), r"must lie in \[0, 1\], got values from 0 to 255.*divide by 255"),
        ((IMAGES.float() / 255 - 0.5, LABELS), "Undo the normalisation"),
        ((torch.full((2, 3, 4, 4), float("nan")), [0, 1]), "must lie in"),
        ((IMAGES.long(), LABELS), "must be uint8 or float in .*got int64"),
        ((IMAGES[0, 0], LABELS), r"shape \(N, C, H, W\), got \(32, 32\)"),
        ((IMAGES, LABELS[:3]), "one for each image"),
        ((IMAGES, LABELS.float()), "whole numbers, got float32"),
        ((IMAGES, torch.eye(6)), "not one-hot rows"),
        ((IMAGES, ["cat"] * 6), r"whole numbers.* got text, 'cat' first. Number the classes from 0: .*numpy.unique"),
        ((IMAGES, np.array(["owl"] * 6)), "got text, 'owl' first"),
        ((IMAGES, [0, None, 1, 2, 3, 0]), "got objects"),
        ((IMAGES, [[0], [0, 1]]), "lengths that differ"),
        ((IMAGES, LABELS > 1), "whole numbers, got bool"),
        ((IMAGES, LABELS - 1), "got -1|got 4"),
        ((IMAGES, LABELS + 1), "got 4"),
        ((IMAGES[:0], LABELS[:0]), "is empty"),
    ],
)
def test_wrong_pairs_are_refused(pair: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        as_data(pair, classes=4)


@pytest.mark.parametrize("value", [None, 3, {"images": 1}, (1, 2, 3), object()])
def test_other_things_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="expected a data set"):
        as_data(value)
