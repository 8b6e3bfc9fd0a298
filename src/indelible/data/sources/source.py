"""Description of a named data set: who made it, what is in it, where to get it, how to read it."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.images import ImageData, Shape

Pair = tuple[ImageData, ImageData]
Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]
"""Images (N, C, H, W) and labels (N,)."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a data set can be fetched from: files under an address, or files of the system's package manager."""

    name: str  # behind --from
    title: str
    files: Mapping[str, Sequence[str]]  # by name, all digests that each must hash to: "sha256:...", "md5:..."
    host: str = ""  # the address that the files lie under
    package: str = ""  # name of the system's package
    folder: str = ""  # where that package puts its files
    verified: bool = False  # whether the digests were checked against a real download, or taken from publications


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

    def holds(self, path: Path) -> bool:
        """Tell whether a file is, by its name, one of the set's own, gzipped or not."""
        return path.name.removesuffix(".gz") in self.contents

    @property
    def archives(self) -> Mapping[str, Sequence[str]]:
        """Archives that the set is published in, with their digests."""
        published = {name: digests for place in self.places for name, digests in place.files.items()}
        return {name: digests for name, digests in published.items() if not self.holds(Path(name))}

    def read(self, folder: Path) -> Pair:
        """Read ``(train, test)`` from a folder of the set's files and check images and labels against each other."""
        train, test = self.rows(folder)
        return self._checked(*train, "training"), self._checked(*test, "test")

    def _checked(self, images: npt.NDArray[np.uint8], labels: npt.NDArray[Any], part: str) -> ImageData:
        try:
            # Arrays over bytes are read-only; tensors are not.
            pixels = torch.from_numpy(np.require(images, requirements=["C", "W", "O"]))
            numbers = torch.from_numpy(labels.astype(np.int64, casting="safe"))
            return ImageData(pixels, numbers, self.classes, self.name)
        except (InputError, TypeError) as error:
            raise DamagedFileError(f"the {part} set of {self.name} is damaged: {error} Fetch it again.") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Inside the block, whatever goes wrong refuses the file ``path``: a damaged one makes readers fail in many ways.

    Files are compared with their published digests before they are read, so readers check nothing themselves.
    """
    try:
        yield
    except Exception as error:
        raise DamagedFileError(f"{path} cannot be read ({error!r}). Fetch the data set again.") from error


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of fetched sets: ``root``, else ``$INDELIBLE_DATA``, else ``~/.cache/indelible``."""
    return Path(root or os.environ.get("INDELIBLE_DATA") or Path.home() / ".cache" / "indelible").expanduser()
