import gzip
from pathlib import Path

import numpy as np
import pytest

from indelible.base.errors import DamagedFileError
from indelible.data.sources.mnist import read_idx

# Two images of 1x3 pixels, written out by hand from the format's description.
IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30, 40, 50, 255])


@pytest.mark.parametrize("packed", [False, True])
def test_reads_values_in_order(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(IMAGES) if packed else IMAGES)
    found = read_idx(path)
    assert found.dtype == np.uint8
    assert found.tolist() == [[[10, 20, 30]], [[40, 50, 255]]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "begins with nothing"),
        (b"PK\x03\x04", "begins with 504b0304"),
        (b"\x00\x00\x0d\x01" + bytes(8), "begins with 00000d01, expected 000008"),
        (IMAGES[:3], "IndexError"),
        (IMAGES[:10], "buffer"),
        (IMAGES[:-1], "cannot reshape array of size 5"),
        (IMAGES + b"!", "cannot reshape array of size 7"),
    ],
)
def test_refuses_what_is_not_whole_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "t10k").write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"t10k cannot be read.*{reason}"):
        read_idx(tmp_path / "t10k")


def test_refuses_broken_gzip_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(IMAGES)[:-6])
    with pytest.raises(DamagedFileError, match=r"images\.gz cannot be read \(EOFError"):
        read_idx(path)
    with pytest.raises(DamagedFileError, match=r"gone cannot be read \(FileNotFoundError"):
        read_idx(tmp_path / "gone")
