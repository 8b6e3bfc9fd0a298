"""A folder of pictures: ``root/CLASS/*.png``, or ``root/train/CLASS/...`` beside ``root/test/CLASS/...`` (or ``val``).

Class names are the folders' names in sorted order, or the lines of a class list (``root/classes.txt`` is found by
itself). So the paper's ImageNet subset is an ordinary ImageNet folder with a list of 100 classes and
``per_class=500`` (train) and ``50`` (test).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.progress import Progress
from indelible.data.images import Data, StreamData, memory_limit

if TYPE_CHECKING:
    from PIL.Image import Image

_CLASS_LIST = "classes.txt"
_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_LOOKED_AT = 64


def folder_parts(
    root: Path,
    *,
    classes: Sequence[str] | str | Path | int | None = None,
    size: int | None = None,
    per_class: tuple[int | None, int | None] = (None, None),
    workers: int = 0,
) -> list[Callable[[], Data]]:
    """Return what reads each part of a folder of pictures: training and test images, or all of them.

    ``classes`` are names in the order of their labels, or the path of a list of them; ``per_class`` takes the first
    pictures by name. The other arguments are those of :func:`indelible.load`.
    """
    if size is not None and size < 1:
        raise InputError(f"the size of images must be at least 1 pixel, got {size}.")
    train = root / "train"
    tests = [root / name for name in ("test", "val") if (root / name).is_dir()]
    if not train.is_dir():
        train, tests = root, []
    names = _class_names(root, train, classes)

    def read(folder: Path, most: int | None) -> Data:
        """Read pictures into memory when they fit, else as a stream."""
        paths, labels = _list(folder, names, most, complete=folder == train)
        reader, rows, name = PictureReader(paths, size), torch.arange(len(paths)), root.resolve().name
        numbers = torch.tensor(labels)
        stream = StreamData(reader=reader, rows=rows, labels=numbers, classes=names, name=name, workers=workers)
        if len(paths) * math.prod(reader.shape) <= memory_limit():
            with Progress(f"reading {name}", len(paths)) as bar:
                return stream.gather(rows, bar)
        return stream

    return [partial(read, folder, most) for folder, most in zip([train, *tests[:1]], per_class, strict=False)]


def _class_names(root: Path, folder: Path, classes: Sequence[str] | str | Path | int | None) -> tuple[str, ...]:
    if isinstance(classes, str | Path):
        return _read_class_list(Path(classes))
    if classes is not None and not isinstance(classes, int):
        return tuple(classes)
    if (root / _CLASS_LIST).is_file():
        return _read_class_list(root / _CLASS_LIST)
    found = tuple(sorted(child.name for child in folder.iterdir() if child.is_dir() and child.name[0] != "."))
    if not found:
        raise InputError(f"{folder} holds no class folders: expected {folder}/CLASS/*.png, one folder for each class.")
    return found


def _read_class_list(path: Path) -> tuple[str, ...]:
    """Read class names, one per line; empty lines and lines that begin with ``#`` are left out."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"the class list {path} cannot be read ({error}).") from error
    names = tuple(line for line in lines if line and not line.startswith("#"))
    if not names or len(set(names)) != len(names):
        raise InputError(f"the class list {path} must name each class once, one per line.")
    return names


def _list(
    folder: Path, names: tuple[str, ...], per_class: int | None, *, complete: bool
) -> tuple[list[Path], list[int]]:
    """Return the pictures of all classes and their labels; a ``complete`` split has pictures of every class."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        if Path(name).name != name:
            raise InputError(f"the class name {name!r} is not the name of a folder.")
        pictures = (one for one in (folder / name).rglob("*") if one.suffix.lower() in _ENDINGS and one.is_file())
        found = sorted(pictures)[:per_class]
        if complete and not found:
            raise InputError(f"the class {name!r} has no pictures: expected {folder / name}/*.png or similar.")
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise InputError(f"{folder} holds no pictures of the classes {', '.join(names[:5])}, ... Check the class list.")
    return paths, labels


@contextmanager
def opened(path: Path, formats: list[str] | None = None) -> Iterator["Image"]:
    """Open a picture; one that is damaged, or of other formats than these, is refused by its name."""
    from PIL import Image

    try:
        with Image.open(path, formats=formats) as picture:
            yield picture
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        kind = " or ".join(formats or ["picture"])
        raise DamagedFileError(f"{path} is not a whole {kind} ({error}). Replace or remove it.") from error


def read_picture(path: Path, *, grey: bool, size: int | None) -> Tensor:
    """Decode a picture to uint8 (C, H, W), one channel if ``grey``, else three.

    ``size`` scales the shorter side to so many pixels (bilinear, antialiased) and cuts the centre square.
    """
    from PIL.Image import Resampling

    with opened(path) as picture:
        pixels = picture.convert("L" if grey else "RGB")
    if size is not None:
        scale = size / min(pixels.size)
        width, height = (max(size, round(scale * side)) for side in pixels.size)
        left, top = (width - size) // 2, (height - size) // 2
        pixels = pixels.resize((width, height), Resampling.BILINEAR)
        pixels = pixels.crop((left, top, left + size, top + size))
    values = np.array(pixels)
    return torch.from_numpy(values[None] if grey else np.ascontiguousarray(values.transpose(2, 0, 1)))


class PictureReader:
    """Reads pictures by index; all have the mode of the set and one size.

    A set is gray when all of (a sample of) its pictures are; a few gray pictures among coloured ones become coloured.
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
    with opened(path) as picture:
        return picture.mode in {"1", "L", "LA", "I", "I;16", "F"}
