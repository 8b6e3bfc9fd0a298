"""Picture files (PNG, JPEG, ...) as tensors of one size and one mode."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError

__all__ = ["ENDINGS", "PictureReader", "read_picture"]

ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_LOOKED_AT = 64


def read_picture(path: Path, *, grey: bool, size: int | None) -> Tensor:
    """Decode a picture to uint8 (C, H, W).

    Args:
        path: The file.
        grey: One channel rather than three.
        size: Scale the shorter side to this many pixels (bilinear, antialiased) and cut the centre square.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = picture.convert("L" if grey else "RGB")
            if size is not None:
                scale = size / min(pixels.size)
                width, height = (max(size, round(scale * side)) for side in pixels.size)
                left, top = (width - size) // 2, (height - size) // 2
                pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
                pixels = pixels.crop((left, top, left + size, top + size))
            values = np.array(pixels)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DamagedFileError(f"{path} is not a whole picture ({error}). Replace or remove it.") from error
    return torch.from_numpy(values[None] if grey else np.ascontiguousarray(values.transpose(2, 0, 1)))


class PictureReader:
    """Reads pictures by index; all have the mode of the set and one size.

    A set is grey when all of (a sample of) its pictures are; a few grey pictures among coloured ones become coloured.
    """

    def __init__(self, paths: Sequence[Path], size: int | None) -> None:
        self.paths, self.size = tuple(paths), size
        step = max(1, len(self.paths) // _LOOKED_AT)
        self.grey = all(_is_grey(path) for path in self.paths[::step])
        channels, height, width = read_picture(self.paths[0], grey=self.grey, size=size).shape
        self.shape = (channels, height, width)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        image = read_picture(self.paths[index], grey=self.grey, size=self.size)
        if tuple(image.shape) != self.shape:
            raise InputError(
                f"{self.paths[index]} has the shape {tuple(image.shape)}, but {self.paths[0]} has {self.shape}. "
                "Give a size, to which all pictures are brought."
            )
        return image


def _is_grey(path: Path) -> bool:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return picture.mode in {"1", "L", "LA", "I", "I;16", "F"}
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
        raise DamagedFileError(f"{path} is not a picture ({error}). Replace or remove it.") from error
