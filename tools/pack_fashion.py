"""Rebuild the embedded data set (src/indelible/data/assets/fashion-mini.xz) byte for byte.

Source: Fashion-MNIST (Zalando SE, MIT licence), four IDX files, gzipped or not. Debian ships them as the package
`dataset-fashion-mnist`; `src/indelible/data/sources/sources.toml` has the address of the official ones.

Which images: for every class the 750 training and 200 test images whose SHA-256 of "fashion-mini/SPLIT/INDEX" is
smallest - a random choice that depends on no library's generator.

How they are packed: images of one class behind one another, plain bytes, xz. Measured on 9,500 training images (bytes):
xz 3,534,936; xz after the MED predictor 3,673,840; PNG sheets 3,718,090; lossless WebP 3,513,968 in the best layout,
but 226 s to pack and a codec that a build of Pillow may lack.

    python tools/pack_fashion.py FOLDER_WITH_IDX_FILES [OUTPUT]
"""

import hashlib
import lzma
import sys
from pathlib import Path

import numpy as np

from indelible.data.sources.mnist import ASSET, TEST_PER_CLASS, TRAIN_PER_CLASS, read_idx

_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def choose(
    labels: "np.ndarray[tuple[int], np.dtype[np.uint8]]", split: str, per_class: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the chosen indices, class after class, rising within a class."""
    rank = np.array(
        [hashlib.sha256(f"fashion-mini/{split}/{index}".encode()).hexdigest() for index in range(len(labels))]
    )
    chosen = []
    for label in range(10):
        members = np.flatnonzero(labels == label)
        chosen.append(np.sort(members[np.argsort(rank[members])[:per_class]]))
    return np.concatenate(chosen)


def pack(folder: Path) -> bytes:
    """Return the packed file: indices (uint16, little-endian) of train and test, then pixels of train and test."""
    numbers, pixels = [], []
    for split, prefix, per_class in (("train", "train", TRAIN_PER_CLASS), ("test", "t10k", TEST_PER_CLASS)):
        images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
        chosen = choose(read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte")), split, per_class)
        numbers.append(chosen.astype("<u2").tobytes())
        pixels.append(images[chosen].tobytes())
    return lzma.compress(b"".join(numbers + pixels), lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_XZ)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SystemExit(f"{folder} lacks {name} and {name}.gz")


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        raise SystemExit(__doc__)
    target = Path(sys.argv[2]) if len(sys.argv) == 3 else ASSET
    packed = pack(Path(sys.argv[1]))
    target.write_bytes(packed)
    print(f"{target}: {len(packed):,} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")
