"""MNIST, Fashion-MNIST, and the default data set: 9,500 images of Fashion-MNIST inside the package, no download needed.

Sources: http://yann.lecun.com/exdb/mnist/ (LeCun, Cortes, Burges) and https://github.com/zalandoresearch/fashion-mnist
(Xiao, Rasul, Vollgraf 2017, MIT licence, text beside the packed file).

The files are IDX: two zero bytes, a type byte, the number of axes, each axis as a big-endian 32-bit integer, then the
values. Only unsigned bytes (type 0x08) occur in these sets.

``fashion-mini`` has 7,500 training images (750 a class: with a 20 % split 6,000 for the owner, 1,500 for the attacker)
and 2,000 test images (200 a class). ``tools/pack_fashion.py`` says how they were chosen and rebuilds the file. Layout
inside the xz file: indices into the original training set, uint16 little-endian (7500,), class after class; the same of
the test set (2000,); pixels (7500, 28, 28); pixels (2000, 28, 28).
"""

import gzip
import lzma
from pathlib import Path

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError
from indelible.base.files import file_digest
from indelible.data.sources.source import Rows, reading

TRAIN_PER_CLASS, TEST_PER_CLASS = 750, 200
ASSET = Path(__file__).parent.parent / "assets" / "fashion-mini.xz"
_SHA256 = "22943b016b80d87a597c682a6cb9093e4bad1090fbaccfc0cf27c1d367d9235c"
_UNSIGNED_BYTES = b"\x00\x00\x08"
_GZIP = b"\x1f\x8b"


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not."""
    with reading(path):
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        if not content.startswith(_UNSIGNED_BYTES):
            raise ValueError(f"it begins with {content[:4].hex() or 'nothing'}, expected 000008")
        axes = content[3]
        shape = np.frombuffer(content, ">u4", axes, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape.tolist())


def mnist_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read MNIST or Fashion-MNIST from four IDX files, gzipped or not."""
    return _read(folder, "train"), _read(folder, "t10k")


def _read(folder: Path, prefix: str) -> Rows:
    names = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    packed = ((folder / f"{name}.gz", folder / name) for name in names)
    images, labels = (read_idx(gz if gz.is_file() else plain) for gz, plain in packed)
    return images[:, None], labels


def embedded_rows(folder: Path) -> tuple[Rows, Rows]:
    """Unpack the embedded set; images stand in the order of the original set, so classes are mixed."""
    path = folder / ASSET.name
    if not path.is_file() or file_digest(path) != _SHA256:
        raise DamagedFileError(f"{path} is missing or damaged: expected SHA-256 {_SHA256}. Install indelible again.")
    content = lzma.decompress(path.read_bytes())
    train, test = 10 * TRAIN_PER_CLASS, 10 * TEST_PER_CLASS
    indices = np.frombuffer(content, "<u2", train + test)
    pixels = np.frombuffer(content, np.uint8, offset=2 * (train + test)).reshape(train + test, 1, 28, 28)
    return (
        _mixed(indices[:train], pixels[:train], TRAIN_PER_CLASS),
        _mixed(indices[train:], pixels[train:], TEST_PER_CLASS),
    )


def _mixed(indices: npt.NDArray[np.uint16], pixels: npt.NDArray[np.uint8], per_class: int) -> Rows:
    order = np.argsort(indices)
    return pixels[order], np.repeat(np.arange(10), per_class)[order]
