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
import hashlib
import lzma
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError
from indelible.data.sources.source import Rows

TRAIN_PER_CLASS, TEST_PER_CLASS = 750, 200
ASSET = Path(__file__).parent.parent / "assets" / "fashion-mini.xz"
_SHA256 = "22943b016b80d87a597c682a6cb9093e4bad1090fbaccfc0cf27c1d367d9235c"
_UNSIGNED_BYTE = 0x08
_GZIP = b"\x1f\x8b"


def read_idx(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not."""
    try:
        content = Path(path).read_bytes()
        if content[:2] == _GZIP:
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} does not exist. Fetch the data set again.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}). Fetch it again.") from error
    return parse_idx(content, str(path))


def parse_idx(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Return the array in ``content``; ``name`` is what errors call the file."""
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] != _UNSIGNED_BYTE or content[3] == 0:
        raise DamagedFileError(
            f"{name} is not an IDX file of unsigned bytes: it begins with {content[:4].hex() or 'nothing'}, "
            "expected 000008 and the number of axes. Fetch it again."
        )
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise DamagedFileError(f"{name} ends inside its header. Fetch it again.")
    shape: tuple[Any, ...] = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, 4))
    wanted, found = math.prod(shape), len(content) - start
    if wanted != found:
        raise DamagedFileError(f"{name} must hold {wanted:,} bytes of values, got {found:,}. Fetch it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def mnist_rows(folder: Path) -> tuple[Rows, Rows]:
    """Read MNIST or Fashion-MNIST from four IDX files, gzipped or not."""
    return _read(folder, "train"), _read(folder, "t10k")


def _read(folder: Path, prefix: str) -> Rows:
    images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.ndim != 1:
        raise DamagedFileError(
            f"{folder}: {prefix} images must have 3 axes and labels 1, got {images.ndim} and {labels.ndim}."
        )
    return images[:, None], labels.astype("int64")


def _find(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() else folder / name


def embedded_rows(folder: Path) -> tuple[Rows, Rows]:
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
        _mixed(indices[:train], pixels[:train], TRAIN_PER_CLASS),
        _mixed(indices[train:], pixels[train:], TEST_PER_CLASS),
    )


def _mixed(indices: npt.NDArray[np.uint16], pixels: npt.NDArray[np.uint8], per_class: int) -> Rows:
    order = np.argsort(indices)
    return pixels[order], np.repeat(np.arange(10), per_class)[order]
