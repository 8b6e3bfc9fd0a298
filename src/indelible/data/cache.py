"""The decoded images of a fetched set, beside its files: loading takes a moment instead of a decode.

The cache is bound to the files it was decoded from (a digest over their digests) and to its own content (a digest over
the tensors). When either does not fit it is decoded again; a set that lies on a read-only disk works without it.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, StorageError
from indelible.base.files import canonical_json, read_tensors, tensor_digest, write_tensors
from indelible.data.images import ImageData
from indelible.data.sources.source import Pair, Source

__all__ = ["CACHE", "read_cache", "write_cache"]

CACHE = "images.safetensors"
_FORMAT = 1


def write_cache(folder: Path, manifest: dict[str, Any], pair: Pair) -> None:
    """Store decoded images; a disk that refuses is no error, the images can be decoded again."""
    train, test = pair
    tensors = {
        "train_images": train.images, "train_labels": train.labels,
        "test_images": test.images, "test_labels": test.labels,
    }  # fmt: skip
    metadata = {"format": _FORMAT, "files": _files_digest(manifest), "tensors": tensor_digest(tensors)}
    with contextlib.suppress(StorageError):
        write_tensors(folder / CACHE, tensors, metadata)


def read_cache(source: Source, folder: Path, manifest: dict[str, Any]) -> Pair | None:
    """Return ``(train, test)``, or None when the cache is missing, damaged or of other files."""
    try:
        tensors, metadata = read_tensors(folder / CACHE)
    except DamagedFileError:
        return None
    names = {"train_images", "train_labels", "test_images", "test_labels"}
    fits = (
        metadata.get("format") == _FORMAT
        and metadata.get("files") == _files_digest(manifest)
        and tensors.keys() == names
        and metadata.get("tensors") == tensor_digest(tensors)
    )
    if not fits:
        return None
    return (
        ImageData(tensors["train_images"], tensors["train_labels"], source.classes, source.name),
        ImageData(tensors["test_images"], tensors["test_labels"], source.classes, source.name),
    )


def _files_digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(manifest["files"])).hexdigest()
