"""Description of a named data set: who made it, what is in it, where to get it, how to read it."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.images import ImageData, Shape

Pair = tuple[ImageData, ImageData]
Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]
"""Images (N, C, H, W) and labels (N,)."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a place."""

    name: str
    digests: tuple[str, ...]  # all that it must hash to: "sha256:...", "md5:..."
    url: str = ""  # empty when a package of the system puts it into a folder


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a data set can be fetched from: addresses, or files of the system's package manager."""

    name: str  # behind --from
    title: str
    files: tuple[RemoteFile, ...]  # what is downloaded; of a folder, the files it must hold
    package: str = ""  # name of the system's package
    folder: str = ""  # where that package puts its files
    verified: bool = False  # whether the digests were checked against a real download, or taken from publications

    @classmethod
    def of(cls, name: str, *, files: Mapping[str, Sequence[str]], host: str = "", **rest: Any) -> Self:
        """Make a place of its entry in ``sources.toml``."""
        known = (
            RemoteFile(name=file, url=f"{host}/{file}" if host else "", digests=tuple(digests))
            for file, digests in files.items()
        )
        return cls(name=name, files=tuple(known), **rest)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A named data set: its entry in ``sources.toml``, which explains the fields, and how its files are read.

    ``places`` has the preferred place first; ``embedded`` is the folder inside this package of a set that needs no
    fetch.
    """

    name: str
    title: str
    licence: str
    citation: str
    homepage: str
    classes: tuple[str, ...]
    shape: Shape
    train: int
    test: int
    rows: Callable[[Path], tuple[Rows, Rows]]  # training and test images in a folder, in any of the known formats
    places: tuple[Place, ...] = ()
    contents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    embedded: Path | None = None

    def place(self, name: str) -> Place | None:
        """Return the place called ``name``, if there is one."""
        return next((place for place in self.places if place.name == name), None)

    def read(self, folder: Path) -> Pair:
        """Read ``(train, test)`` from a folder of the set's files and check images and labels against each other."""
        train, test = self.rows(folder)
        return self._checked(*train, "training"), self._checked(*test, "test")

    def _checked(self, images: npt.NDArray[np.uint8], labels: npt.NDArray[Any], part: str) -> ImageData:
        if len(images) != len(labels):
            raise DamagedFileError(
                f"the {part} set of {self.name} has {len(images):,} images but {len(labels):,} labels. Fetch it again."
            )
        if len(labels) and (labels.min() < 0 or labels.max() >= len(self.classes)):
            raise DamagedFileError(
                f"labels of the {part} set of {self.name} must lie in 0..{len(self.classes) - 1}, got values from "
                f"{labels.min()} to {labels.max()}. Fetch it again."
            )
        # Arrays over bytes are read-only; tensors are not.
        pixels = np.require(images, requirements=["C", "W", "O"])
        return ImageData(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)), self.classes, self.name)


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of fetched sets: ``root``, else ``$INDELIBLE_DATA``, else ``~/.cache/indelible``."""
    return Path(root or os.environ.get("INDELIBLE_DATA") or Path.home() / ".cache" / "indelible").expanduser()


def check_split(path: Path, splits: Collection[str], split: str | None, *, expected: str) -> None:
    """Refuse a split that files of the user do not have (``expected`` would be it), or none where there are two."""
    if len(splits) == 2 and split is None:
        raise InputError(
            f"{path} holds the splits train and test. Choose one with split=..., or read both with indelible.data.load."
        )
    if split is not None and split not in splits:
        raise InputError(f"{path} has no {split} split: expected {expected}.")
