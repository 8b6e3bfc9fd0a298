"""The default data set, shipped inside the package: 9,500 real images of Fashion-MNIST, no download needed.

Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, https://github.com/zalandoresearch/fashion-mnist), MIT licence, text beside
the packed file. 7,500 training images (750 a class: with a 20 % split 6,000 for the owner, 1,500 for the attacker) and
2,000 test images (200 a class). ``tools/pack_fashion.py`` says how they were chosen and rebuilds the file.

Layout inside the xz file: indices into the original training set, uint16 little-endian (7500,), class after class; the
same of the test set (2000,); pixels (7500, 28, 28); pixels (2000, 28, 28).
"""

import hashlib
import lzma
from pathlib import Path

import numpy as np
import torch

from indelible.base.errors import DamagedFileError
from indelible.data.images import ImageData
from indelible.data.sources.source import Pair, Source

__all__ = ["ASSET", "FASHION_CLASSES", "FASHION_MINI", "TEST_PER_CLASS", "TRAIN_PER_CLASS", "read_embedded"]

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
TRAIN_PER_CLASS, TEST_PER_CLASS = 750, 200
ASSET = Path(__file__).parent.parent / "assets" / "fashion-mini.xz"
_SHA256 = "22943b016b80d87a597c682a6cb9093e4bad1090fbaccfc0cf27c1d367d9235c"
_PIXELS = 28 * 28


def read_embedded(folder: Path) -> Pair:
    """Unpack the embedded set; images stand in the order of the original set, so classes are mixed."""
    path = folder / ASSET.name
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Install indelible again.") from error
    found = hashlib.sha256(packed).hexdigest()
    if found != _SHA256:
        raise DamagedFileError(
            f"{path} is damaged: expected SHA-256 {_SHA256}, found {found}. Install indelible again."
        )
    content = lzma.decompress(packed)
    train, test = 10 * TRAIN_PER_CLASS, 10 * TEST_PER_CLASS
    indices = np.frombuffer(content, "<u2", train + test)
    pixels = np.frombuffer(content, np.uint8, offset=2 * (train + test)).reshape(train + test, 1, 28, 28)
    return (
        _set(indices[:train], pixels[:train], TRAIN_PER_CLASS),
        _set(indices[train:], pixels[train:], TEST_PER_CLASS),
    )


def _set(
    indices: "np.ndarray[tuple[int], np.dtype[np.uint16]]",
    pixels: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]",
    per_class: int,
) -> ImageData:
    labels = np.repeat(np.arange(10), per_class)
    order = np.argsort(indices)
    return ImageData(torch.from_numpy(pixels[order]), torch.from_numpy(labels[order]), FASHION_CLASSES, "fashion-mini")


FASHION_MINI = Source(
    name="fashion-mini",
    title="Fashion-MNIST, 9,500 images of it, shipped with indelible",
    licence="MIT, Copyright 2017 Zalando SE",
    citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    classes=FASHION_CLASSES,
    shape=(1, 28, 28),
    train=10 * TRAIN_PER_CLASS,
    test=10 * TEST_PER_CLASS,
    read=read_embedded,
    embedded=ASSET.parent,
)
