"""SVHN, cropped digits: 99,289 colour images of house numbers, 32x32 pixels (Netzer et al. 2011).

Format 2 of http://ufldl.stanford.edu/housenumbers/: Matlab files with ``X`` (32, 32, 3, N) and ``y`` (N, 1), where the
digit 0 has the label 10.
"""

from pathlib import Path
from typing import Any

import numpy as np

from indelible.base.errors import DamagedFileError
from indelible.data.sources.source import Rows


def svhn_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read ``train_32x32.mat`` and ``test_32x32.mat``."""
    return _read(folder / "train_32x32.mat"), _read(folder / "test_32x32.mat")


def _read(path: Path) -> Rows:
    from scipy.io import loadmat

    if not path.is_file():
        raise DamagedFileError(f"{path} does not exist. Fetch the data set again.")
    try:
        content: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
        images, labels = np.asarray(content["X"]), np.asarray(content["y"]).reshape(-1)
    except Exception as error:
        # A damaged Matlab file makes scipy fail in many ways, none of them documented.
        raise DamagedFileError(
            f"{path} is not a whole Matlab file with X and y ({error!r}). Fetch it again."
        ) from error
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
        raise DamagedFileError(f"{path}: X must be bytes of shape (32, 32, 3, N), got {images.dtype} {images.shape}.")
    numbers = labels.astype(np.int64)
    numbers[numbers == 10] = 0
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), numbers
