"""SVHN, cropped digits: 99,289 colour images of house numbers, 32x32 pixels (Netzer et al. 2011).

Format 2 of http://ufldl.stanford.edu/housenumbers/: Matlab files with ``X`` (32, 32, 3, N) and ``y`` (N, 1), where the
digit 0 has the label 10.
"""

from pathlib import Path

import numpy as np

from indelible.data.sources.source import Rows, reading


def svhn_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read ``train_32x32.mat`` and ``test_32x32.mat``."""
    return _read(folder / "train_32x32.mat"), _read(folder / "test_32x32.mat")


def _read(path: Path) -> Rows:
    from scipy.io import loadmat

    with reading(path):
        content = loadmat(path, variable_names=["X", "y"])
        return content["X"].transpose(3, 2, 0, 1), np.where(content["y"] == 10, 0, content["y"]).reshape(-1)
