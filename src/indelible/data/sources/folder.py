"""A folder of pictures: ``root/CLASS/*.png``, or ``root/train/CLASS/...`` beside ``root/test/CLASS/...`` (or ``val``).

Class names are the folders' names in sorted order, or the lines of a class list (``root/classes.txt`` is found by
itself). So the paper's ImageNet subset is an ordinary ImageNet folder with a list of 100 classes and
``per_class=500`` (train) and ``50`` (test).
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json
from indelible.base.progress import Progress
from indelible.data.formats.pictures import ENDINGS, PictureReader
from indelible.data.images import Data
from indelible.data.roots import data_root, memory_limit
from indelible.data.rows import RowCache
from indelible.data.stream import StreamData

__all__ = ["folder_splits", "read_class_list", "read_folder"]

_SPLITS = {"train": ("train",), "test": ("test", "val")}
_CLASS_LIST = "classes.txt"


def folder_splits(path: Path) -> dict[str, Path]:
    """Return the folders of the splits, by ``"train"`` and ``"test"``; empty when the folder is not split."""
    found = {
        split: next((path / name for name in names if (path / name).is_dir()), None) for split, names in _SPLITS.items()
    }
    whole = {split: folder for split, folder in found.items() if folder is not None}
    return whole if "train" in whole else {}


def read_class_list(path: Path) -> tuple[str, ...]:
    """Read class names, one a line; empty lines and lines that begin with ``#`` are left out."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"the class list {path} cannot be read ({error}).") from error
    names = tuple(line for line in lines if line and not line.startswith("#"))
    if not names or len(set(names)) != len(names):
        raise InputError(f"the class list {path} must name each class once, one a line.")
    return names


def read_folder(
    path: str | Path,
    classes: Sequence[str] | str | Path | None = None,
    size: int | None = None,
    split: Literal["train", "test"] | None = None,
    *,
    per_class: int | None = None,
    workers: int = 0,
    limit: int | None = None,
) -> Data:
    """Read a folder of pictures, into memory when they fit, else as a stream.

    Args:
        path: The folder.
        classes: Names of the classes to use, in the order of their labels, or the path of a list of them.
        size: Height and width of all images; without it all pictures must have one size.
        split: Which split of a folder that has them.
        per_class: At most so many pictures of each class, the first by name.
        workers: Processes that decode a streamed set.
        limit: Bytes of images that may be held in memory.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder. Check the path.")
    if size is not None and size < 1:
        raise InputError(f"the size of images must be at least 1 pixel, but is {size}.")
    splits = folder_splits(root)
    if splits and split is None:
        raise InputError(
            f"{root} holds the splits {' and '.join(splits)}. Choose one with split=..., or read both with "
            "indelible.data.load."
        )
    if split is not None and split not in splits:
        raise InputError(f"{root} has no {split} split: expected the folder {root / split}.")
    names = _class_names(root, splits.get("train", root), classes)
    folder = splits[split] if split is not None else root
    paths, labels = _list(folder, names, per_class, complete=split != "test")
    name = root.resolve().name
    return _read(paths, torch.tensor(labels), names, name, size, workers, limit)


def _class_names(root: Path, folder: Path, classes: Sequence[str] | str | Path | None) -> tuple[str, ...]:
    if isinstance(classes, str | Path):
        return read_class_list(Path(classes))
    if classes is not None:
        return tuple(classes)
    if (root / _CLASS_LIST).is_file():
        return read_class_list(root / _CLASS_LIST)
    found = tuple(sorted(child.name for child in folder.iterdir() if child.is_dir() and child.name[0] != "."))
    if not found:
        raise InputError(f"{folder} holds no class folders: expected {folder}/CLASS/*.png, one folder for each class.")
    return found


def _list(
    folder: Path, names: tuple[str, ...], per_class: int | None, *, complete: bool
) -> tuple[list[Path], list[int]]:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        if Path(name).name != name:
            raise InputError(f"the class name {name!r} is not the name of a folder.")
        found = sorted(_pictures(folder / name))[:per_class]
        if complete and not found:
            raise InputError(f"the class {name!r} has no pictures: expected {folder / name}/*.png or similar.")
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise InputError(f"{folder} holds no pictures of the classes {', '.join(names[:5])}, ... Check the class list.")
    return paths, labels


def _pictures(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())


def _read(
    paths: list[Path],
    labels: torch.Tensor,
    names: tuple[str, ...],
    name: str,
    size: int | None,
    workers: int,
    limit: int | None,
) -> Data:
    reader = PictureReader(paths, size)
    count, pixels = len(paths), int(np.prod(reader.shape))
    stream = StreamData(
        reader=reader,
        rows=torch.arange(count),
        labels=labels,
        classes=names,
        shape=reader.shape,
        name=name,
        workers=workers,
    )
    if count * pixels <= (memory_limit() if limit is None else limit):
        with Progress(f"reading {name}", count) as bar:
            return stream.gather(torch.arange(count), bar)
    file = data_root() / "streams" / f"{_key(reader)}.rows"
    cache = RowCache(file, count, pixels) if RowCache.fits(file.parent, count, pixels) else None
    return stream.cached(cache)


def _key(reader: PictureReader) -> str:
    """Return a name that changes when a picture, the size or the mode changes."""
    files = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in reader.paths]
    return hashlib.sha256(canonical_json([files, reader.size, reader.grey])).hexdigest()[:32]
