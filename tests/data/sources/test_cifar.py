from pathlib import Path

import numpy as np
import pytest

from indelible.base.errors import DamagedFileError
from indelible.data.sources.cifar import read_binary, read_sheet
from tests.data.makers import cifar_binary, cifar_sheet, labels, pixels, write_picture


@pytest.mark.parametrize(("coarse", "label_bytes"), [(None, 1), (17, 2)])
def test_binary_records(tmp_path: Path, coarse: int | None, label_bytes: int) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(cifar_binary(pixels(5), labels(5), coarse))
    images, numbers = read_binary(path, label_bytes)
    np.testing.assert_array_equal(images, pixels(5))
    assert numbers.tolist() == labels(5)


def test_binary_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(bytes([6]) + bytes([1] * 1024) + bytes([2] * 1024) + bytes([3] * 1023 + [99]))
    images, numbers = read_binary(path, 1)
    assert numbers.tolist() == [6]
    assert images[0, :, 0, 0].tolist() == [1, 2, 3]
    assert images[0, 2, 31, 31] == 99


def test_a_sheet_holds_the_same(tmp_path: Path) -> None:
    sheet = tmp_path / "batch.png"
    sheet.write_bytes(cifar_sheet(pixels(3)))
    np.testing.assert_array_equal(read_sheet(sheet), pixels(3))


def test_truncated_files_are_refused_by_name(tmp_path: Path) -> None:
    binary, sheet = tmp_path / "a.bin", tmp_path / "a.png"
    binary.write_bytes(cifar_binary(pixels(2), labels(2))[:-1])
    with pytest.raises(DamagedFileError, match=r"a\.bin cannot be read .*size 6145 .*3073"):
        read_binary(binary, 1)
    sheet.write_bytes(cifar_sheet(pixels(8))[:-2000])
    with pytest.raises(DamagedFileError, match=r"a\.png is not a whole PNG"):
        read_sheet(sheet)
    with pytest.raises(DamagedFileError, match=r"gone\.bin cannot be read"):
        read_binary(tmp_path / "gone.bin", 1)


def test_sheet_of_another_width_is_refused(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", np.zeros((4, 512, 3), np.uint8))
    with pytest.raises(DamagedFileError, match=r"a\.png is not a whole PNG .*into shape \(4,32,32,3\)"):
        read_sheet(tmp_path / "a.png")
