from pathlib import Path

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.sources.folder import PictureReader, read_picture
from tests.data.makers import pixels, write_picture


def test_pixels_are_read_exactly(tmp_path: Path) -> None:
    colour, grey = pixels(1, (5, 7, 3))[0], pixels(1, (5, 7))[0]
    write_picture(tmp_path / "c.png", colour)
    write_picture(tmp_path / "g.png", grey)
    found = read_picture(tmp_path / "c.png", grey=False, size=None)
    assert torch.equal(found, torch.from_numpy(colour).permute(2, 0, 1))
    assert torch.equal(read_picture(tmp_path / "g.png", grey=True, size=None), torch.from_numpy(grey)[None])


@pytest.mark.parametrize("shape", [(20, 40, 3), (40, 20, 3)])
def test_shorter_side_is_scaled_and_the_centre_kept(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    values = np.zeros(shape, np.uint8)
    # The centre square is white, the two ends are black.
    if shape[1] > shape[0]:
        values[:, 10:30] = 255
    else:
        values[10:30] = 255
    write_picture(tmp_path / "a.png", values)
    found = read_picture(tmp_path / "a.png", grey=False, size=10)
    assert found.shape == (3, 10, 10)
    assert int(found[:, 2:8, 2:8].min()) == 255
    assert read_picture(tmp_path / "a.png", grey=False, size=64).shape == (3, 64, 64)


def test_a_set_is_grey_only_when_all_pictures_are(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.png" for n in range(3)]
    for path in paths[:2]:
        write_picture(path, pixels(1, (4, 4))[0])
    assert PictureReader(paths[:2], None).shape == (1, 4, 4)
    write_picture(paths[2], pixels(1, (4, 4, 3))[0])
    reader = PictureReader(paths, None)
    assert reader.shape == (3, 4, 4)
    assert len({tuple(reader[n].shape) for n in range(len(reader))}) == 1


def test_ragged_and_broken_pictures_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    write_picture(paths[0], pixels(1, (4, 4, 3))[0])
    write_picture(paths[1], pixels(1, (4, 5, 3))[0])
    with pytest.raises(InputError, match=r"b\.png has the shape \(3, 4, 5\).*Give a size"):
        PictureReader(paths, None)[1]
    paths[0].write_bytes(paths[0].read_bytes()[:40])
    with pytest.raises(DamagedFileError, match=r"a\.png is not a"):
        PictureReader(paths, None)
    paths[0].write_text("no picture")
    with pytest.raises(DamagedFileError, match=r"a\.png is not a"):
        PictureReader(paths, None)
