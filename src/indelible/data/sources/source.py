"""What is known of a named data set: who made it, what is in it, where it can be had, how it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from indelible.base.errors import DamagedFileError
from indelible.data.images import ImageData, Shape

__all__ = ["Pair", "Place", "RemoteFile", "Source", "image_pair"]

Pair = tuple[ImageData, ImageData]


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a place.

    Attributes:
        name: Its name on disk.
        digests: What it must hash to, all of them: ``"sha256:..."``, ``"md5:..."``.
        url: Its address; empty when the package manager knows it.
        verified: Whether the digests were checked against a real download, rather than taken from publications.
    """

    name: str
    digests: tuple[str, ...]
    url: str = ""
    verified: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a data set can be fetched from.

    Attributes:
        name: The name behind ``--from``.
        title: What it is, for a list.
        kind: ``"web"`` (addresses), ``"npm"`` (a package, asked of the user's npm client) or ``"folder"`` (files
            that the operating system's package manager installs).
        files: What is downloaded; of a folder, the files it must hold.
        package: ``name@version`` of an npm package, or the name of the system's package.
        folder: Where the system's package puts its files.
    """

    name: str
    title: str
    kind: Literal["web", "npm", "folder"]
    files: tuple[RemoteFile, ...]
    package: str = ""
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A named data set.

    Attributes:
        name: The name on the command line.
        title: The full name.
        licence: Under which terms it may be used, as far as its makers say.
        citation: Whom to cite.
        homepage: Where it is described.
        classes: Class names; label ``k`` is ``classes[k]``.
        shape: (C, H, W) of every image.
        train: Training images.
        test: Test images.
        read: Reads ``(train, test)`` from a folder of the set's files, whichever of the known formats they have.
        places: Where it can be fetched from, the preferred one first.
        contents: Digests that single files must have, by file name, wherever they came from. A name may have more
            than one good digest (a file compressed anew); a file that is not listed is checked by its structure.
        embedded: The folder inside this package that holds the set; no fetch is needed.
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
    read: Callable[[Path], Pair]
    places: tuple[Place, ...] = ()
    contents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    embedded: Path | None = None

    def place(self, name: str) -> Place | None:
        """Return the place called ``name``, if there is one."""
        return next((place for place in self.places if place.name == name), None)


Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]


def image_pair(train: Rows, test: Rows, classes: tuple[str, ...], name: str) -> Pair:
    """Return ``(train, test)`` from arrays of images (N, C, H, W) and labels (N,), checked against each other."""
    return _image_set(*train, classes, name, "training"), _image_set(*test, classes, name, "test")


def _image_set(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[Any], classes: tuple[str, ...], name: str, part: str
) -> ImageData:
    if len(images) != len(labels):
        raise DamagedFileError(
            f"the {part} set of {name} has {len(images):,} images but {len(labels):,} labels. Fetch it again."
        )
    if len(labels) and (labels.min() < 0 or labels.max() >= len(classes)):
        raise DamagedFileError(
            f"labels of the {part} set of {name} must lie in 0..{len(classes) - 1}, but reach from {labels.min()} to "
            f"{labels.max()}. Fetch it again."
        )
    # Arrays over bytes are read-only; tensors are not.
    pixels = np.require(images, requirements=["C", "W", "O"])
    return ImageData(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)), classes, name)
