"""Arrays in an ``.npz`` file: ``images`` and ``labels``, or ``x_train``, ``y_train``, ``x_test``, ``y_test``.

Source of the format: https://numpy.org/doc/stable/reference/generated/numpy.savez.html. Arrays of Python objects are
refused, because reading them would unpickle.
"""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.data.sources.source import check_split

_KEYS = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
_ONE = ("images", "labels")


def npz_splits(path: str | Path) -> tuple[str, ...]:
    """Return the splits that the file holds: ``("train", "test")``, one of them, or none (plain images and labels)."""
    with _open(Path(path)) as arrays:
        return tuple(split for split, keys in _KEYS.items() if set(keys) <= set(arrays.files))


def read_npz(
    path: str | Path, classes: Sequence[str] | int | None = None, *, split: Literal["train", "test"] | None = None
) -> Data:
    """Read labelled images, of one split where the file has both; the highest label decides the number of classes."""
    path = Path(path)
    splits = npz_splits(path)
    check_split(path, splits, split, expected=f"the arrays {' and '.join(_KEYS[split or 'train'])}")
    with _open(path) as arrays:
        keys = _KEYS[split or splits[0]] if splits else _ONE
        if not set(keys) <= set(arrays.files):
            raise InputError(
                f"{path} must hold the arrays images and labels, or x_train, y_train, x_test and y_test, got "
                f"{', '.join(arrays.files) or 'none'}."
            )
        images, labels = _array(arrays, keys[0], path), _labels(arrays, keys[1], path)
        if classes is None and splits:
            # Both splits must agree on the number of classes even when one lacks the last class.
            classes = 1 + max(int(_labels(arrays, _KEYS[part][1], path).max(initial=0)) for part in splits)
    return as_data((images, labels), classes=classes, name=path.stem)


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
