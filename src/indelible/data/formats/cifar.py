"""The two official formats of CIFAR-10 and CIFAR-100, and PNG sheets of the same rows.

Source: https://www.cs.toronto.edu/~kriz/cifar.html. An image is 3,072 bytes: 1,024 red, 1,024 green, 1,024 blue, row by
row. Binary files: before each image one label byte (CIFAR-10) or a coarse and a fine one (CIFAR-100). Python files: a
pickled dictionary with ``data`` (N, 3072) and ``labels`` or ``fine_labels``. PNG sheets: one image a row, 1,024 RGB
pixels.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError
from indelible.data.formats.unpickle import read_pickle

__all__ = ["Rows", "read_binary", "read_python", "read_sheet"]

Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
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
            f"{path} must hold records of {record:,} bytes, but has {content.size:,} bytes. Fetch the data set again."
        )
    rows = content.reshape(-1, record)
    return np.ascontiguousarray(rows[:, label_bytes:]).reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def read_python(path: Path, label_key: bytes) -> Rows:
    """Read (images (N, 3, 32, 32), labels (N,)) from a pickled batch."""
    batch = read_pickle(path)
    if not isinstance(batch, dict):
        raise DamagedFileError(f"{path} must hold a dictionary, but holds a {type(batch).__name__}.")
    # Files written anew by Python 3 have text where the official ones have bytes.
    named = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
    data, labels = named.get(b"data"), _numbers(named.get(label_key))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _BYTES:
        raise DamagedFileError(f"{path} must hold 'data', an array of bytes of shape (N, {_BYTES}). Fetch it again.")
    if labels is None or len(labels) != len(data):
        raise DamagedFileError(f"{path} must hold '{label_key.decode()}', {len(data)} whole numbers. Fetch it again.")
    return data.reshape(-1, 3, 32, 32), labels


def _numbers(value: Any) -> npt.NDArray[np.int64] | None:
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1:
        return value.astype(np.int64)
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return np.array(value, np.int64)
    return None


def read_sheet(path: Path) -> npt.NDArray[np.uint8]:
    """Read images (N, 3, 32, 32) from a PNG of 1,024 pixels a row."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=["PNG"]) as picture:
            if picture.mode != "RGB" or picture.width != 1024:
                raise DamagedFileError(
                    f"{path} must be an RGB picture 1,024 pixels wide, but is {picture.mode} and {picture.width} wide."
                )
            pixels = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
        raise DamagedFileError(f"{path} is not a whole PNG ({error}). Fetch the data set again.") from error
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
