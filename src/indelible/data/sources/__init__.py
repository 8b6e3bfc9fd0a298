"""The named data sets: descriptions in ``sources.toml``, one file per format with the reader of its files."""

import tomllib
from importlib import resources

from indelible.base.registry import Registry
from indelible.data.sources.cifar import cifar10_rows, cifar100_rows
from indelible.data.sources.mnist import ASSET, embedded_rows, mnist_rows
from indelible.data.sources.source import Place, Source
from indelible.data.sources.svhn import svhn_rows

__all__ = ["SOURCES", "Place", "Source"]

_ROWS = {
    "fashion-mini": embedded_rows, "cifar10": cifar10_rows, "cifar100": cifar100_rows, "svhn": svhn_rows,
    "mnist": mnist_rows, "fashion-mnist": mnist_rows,
}  # fmt: skip
_EMBEDDED = {"fashion-mini": ASSET.parent}

SOURCES: Registry[Source] = Registry("data set")
for _name, _entry in tomllib.loads(resources.files(__name__).joinpath("sources.toml").read_text("utf-8")).items():
    _places = tuple(Place(name=place, **about) for place, about in _entry.pop("places", {}).items())
    _entry |= {"classes": tuple(_entry["classes"]), "shape": tuple(_entry["shape"])}
    SOURCES.add(Source(name=_name, rows=_ROWS[_name], places=_places, embedded=_EMBEDDED.get(_name), **_entry))
