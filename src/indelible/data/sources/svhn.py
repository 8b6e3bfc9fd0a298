"""SVHN, cropped digits: 99,289 colour images of house numbers, 32x32 pixels (Netzer et al. 2011).

Format 2 of http://ufldl.stanford.edu/housenumbers/: Matlab files with ``X`` (32, 32, 3, N) and ``y`` (N, 1), where the
digit 0 has the label 10. The digests are published ones (MD5 by torchvision, SHA-256 by several libraries); they were
not checked against a download.
"""

from pathlib import Path
from typing import Any

import numpy as np

from indelible.base.errors import DamagedFileError
from indelible.data.formats.cifar import Rows
from indelible.data.sources.source import Pair, Place, RemoteFile, Source, image_pair

__all__ = ["SVHN", "read_svhn"]

CLASSES = tuple("0123456789")
_HOST = "http://ufldl.stanford.edu/housenumbers"
_FILES = {
    "train_32x32.mat": (
        "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
        "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    "test_32x32.mat": (
        "md5:eb5a983be6a315427106f1b164d9cef3",
        "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
}


def read_svhn(folder: Path) -> Pair:
    """Read ``train_32x32.mat`` and ``test_32x32.mat``."""
    return image_pair(_read(folder / "train_32x32.mat"), _read(folder / "test_32x32.mat"), CLASSES, "svhn")


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
        raise DamagedFileError(
            f"{path}: X must be bytes of shape (32, 32, 3, N), but is {images.dtype} {images.shape}."
        )
    numbers = labels.astype(np.int64)
    numbers[numbers == 10] = 0
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), numbers


SVHN = Source(
    name="svhn",
    title="SVHN, cropped digits",
    licence="for non-commercial use only, as its authors ask",
    citation="Y. Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
    homepage="http://ufldl.stanford.edu/housenumbers/",
    classes=CLASSES,
    shape=(3, 32, 32),
    train=73_257,
    test=26_032,
    read=read_svhn,
    places=(
        Place(
            name="official",
            title="official Matlab files (246 MB)",
            kind="web",
            files=tuple(
                RemoteFile(name=name, url=f"{_HOST}/{name}", digests=digests) for name, digests in _FILES.items()
            ),
        ),
    ),
    contents=_FILES,
)
