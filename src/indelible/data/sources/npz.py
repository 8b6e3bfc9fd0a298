"""Arrays in an ``.npz`` file: ``images`` and ``labels``, or ``x_train``, ``y_train``, ``x_test``, ``y_test``.

Source of the format: https://numpy.org/doc/stable/reference/generated/numpy.savez.html. Arrays of Python objects are
refused, because reading them would unpickle.
"""

import contextlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.convert import as_data
from indelible.data.images import Data

_SPLITS = (("x_train", "y_train"), ("x_test", "y_test"))
_ONE = ("images", "labels")


def npz_parts(path: Path, classes: Sequence[str] | int | None = None) -> list[Callable[[], Data]]:
    """Return what reads each part of the file: training and test images, or all of them.

    The highest label decides the number of classes; parts agree on it even when one lacks the last class.
    """
    with _open(path) as arrays:
        found = [keys for keys in (*_SPLITS, _ONE) if set(keys) <= set(arrays.files)]
        parts = [keys for keys in found if keys in _SPLITS] or found
        if not parts:
            raise InputError(
                f"{path} must hold the arrays images and labels, or x_train, y_train, x_test and y_test, got "
                f"{', '.join(arrays.files) or 'none'}."
            )
        if classes is None and len(parts) > 1:
            classes = 1 + max(int(_labels(arrays, key, path).max(initial=0)) for _, key in parts)
    return [partial(_read, path, *keys, classes) for keys in parts]


def _read(path: Path, images: str, labels: str, classes: Sequence[str] | int | None) -> Data:
    with _open(path) as arrays:
        return as_data((_array(arrays, images, path), _labels(arrays, labels, path)), classes=classes, name=path.stem)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    # numpy leaves a damaged file open; a handle of our own is closed in any case.
    try:
        handle = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror}). Check the path.") from error
    with handle:
        try:
            found = np.load(handle, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedFileError(f"{path} is not a whole .npz file ({error}). Restore it from a copy.") from error
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds a single array. Save images and labels together with numpy.savez.")
        with found:
            yield found


def _array(arrays: Any, key: str, path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(arrays[key])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedFileError(
            f"the array {key} of {path} cannot be read ({error}). Arrays of objects are refused; save plain numbers."
        ) from error


def _labels(arrays: Any, key: str, path: Path) -> npt.NDArray[Any]:
    labels = _array(arrays, key, path)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
