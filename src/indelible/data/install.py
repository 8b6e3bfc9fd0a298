"""Bring a named data set to disk, and read it from there.

A fetched set is a folder with ``images.safetensors`` (the decoded images, with a digest of them) and ``manifest.json``
(where they came from, and the digests of the files that they were read from). Both are written when everything has been
checked, the manifest last: a folder without it holds no set.
"""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import (
    disk_errors,
    file_digest,
    read_json,
    read_tensors,
    tensor_digest,
    write_json,
    write_tensors,
)
from indelible.data.download import UnreachableError, download, hash_file, mismatch
from indelible.data.images import ImageData
from indelible.data.sources.source import Pair, Place, Source

MANIFEST = "manifest.json"
IMAGES = "images.safetensors"
_FORMAT = 1
_DEPTH = 4


def install(source: Source, folder: Path, place: Place | Path, downloads: Path) -> None:
    """Put the data set ``source`` into ``folder``; unfinished downloads wait in ``downloads``.

    ``place`` is one of the set's places, or a folder, archive or file that the user has already. What fails leaves the
    set that was there before.
    """
    files = _obtain(source, place, downloads) if isinstance(place, Place) else _collect(source, place)
    with disk_errors(downloads):
        downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads) as name:
        raw = Path(name)
        for path in files:
            _take(source, path, raw)
        pair = _decode(source, raw)
        listed = {
            path.name: {"sha256": file_digest(path), "size": path.stat().st_size} for path in sorted(raw.iterdir())
        }
    tensors = {
        f"{part}_{what}": getattr(data, what)
        for part, data in zip(("train", "test"), pair, strict=True)
        for what in ("images", "labels")
    }
    write_tensors(folder / IMAGES, tensors, {"format": _FORMAT, "tensors": tensor_digest(tensors)})
    origin = place.name if isinstance(place, Place) else "local files"
    write_json(folder / MANIFEST, {"format": _FORMAT, "name": source.name, "place": origin, "files": listed})
    shutil.rmtree(downloads, ignore_errors=True)


def read_installed(source: Source, folder: Path) -> Pair:
    """Return ``(train, test)`` of a fetched set; refuse images that have changed since the fetch."""
    remedy = f"Run 'indelible data fetch {source.name}' again."
    try:
        tensors, metadata = read_tensors(folder / IMAGES)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error} {remedy}") from error
    if metadata.get("tensors") != tensor_digest(tensors):
        raise DamagedFileError(f"the images in {folder / IMAGES} have changed since they were fetched. {remedy}")
    train, test = (
        ImageData(tensors[f"{part}_images"], tensors[f"{part}_labels"], source.classes, source.name)
        for part in ("train", "test")
    )
    return train, test


def installed_from(source: Source, folder: Path) -> str | None:
    """Return where the set in ``folder`` came from; None unless a whole, unaltered set is there."""
    try:
        read_installed(source, folder)
        return str(read_json(folder / MANIFEST)["place"])
    except (DamagedFileError, KeyError, TypeError):
        return None


def _decode(source: Source, raw: Path) -> Pair:
    """Read the set's files; refuse a set that is not of the size and shape it must have."""
    pair = source.read(raw)
    for part, found, wanted in zip(("training", "test"), pair, (source.train, source.test), strict=True):
        if len(found) != wanted or found.shape != source.shape:
            raise DamagedFileError(
                f"{source.name} must have {wanted:,} {part} images of {source.shape}, but these files hold "
                f"{len(found):,} of {found.shape}. Get the files from an official place."
            )
    return pair


def _obtain(source: Source, place: Place, downloads: Path) -> list[Path]:
    """Download the files of a place, or find them where the system's package manager put them."""
    others = [other.name for other in source.places if other is not place]
    remedy = f"Other places: --from {' or '.join(others)}." if others else ""
    if place.folder:
        found = [Path(place.folder) / name for name in place.files]
        missing = [path for path in found if not path.is_file()]
        if missing:
            raise UnreachableError(f"{missing[0]} does not exist: install the package {place.package}. {remedy}")
        return found
    for name, digests in place.files.items():
        try:
            download(f"{place.host}/{name}", downloads / name, digests)
        except (UnreachableError, DamagedFileError) as error:
            raise type(error)(f"{error} {remedy} Or get the file yourself and pass it with --from.") from error
    return [downloads / name for name in place.files]


def _collect(source: Source, path: Path) -> list[Path]:
    """Find the set's files in what the user has, or an archive of them."""
    if path.is_file():
        return [path if source.holds(path) else _known_archive(source, path)]
    if not path.is_dir():
        names = ", ".join(place.name for place in source.places) or "none"
        raise InputError(
            f"{path} is neither a place of {source.name} (places: {names}) nor a folder or file. Check the path."
        )
    candidates: dict[str, list[Path]] = {}
    for pattern in ("*/" * depth + "*" for depth in range(_DEPTH)):
        for found in filter(Path.is_file, sorted(path.glob(pattern))):
            if found.name in source.archives:
                return [_known_archive(source, found)]
            if source.holds(found):
                candidates.setdefault(found.name.removesuffix(".gz"), []).append(found)
    if not candidates:
        names = ", ".join(sorted({*source.archives, *source.contents}))
        raise InputError(f"{path} holds no files of {source.name}: expected some of {names}. Check the path.")
    # Of several files with one name (MNIST beside Fashion-MNIST), the one with the right content.
    return [
        next((one for one in found if len(found) > 1 and not _mismatches(source, one)), found[0])
        for found in candidates.values()
    ]


def _known_archive(source: Source, path: Path) -> Path:
    """Accept a file that is, by its digest, an archive that the set is published in."""
    found = hash_file(path, "sha256")
    if not any(f"sha256:{found}" in digests for digests in source.archives.values()):
        raise DamagedFileError(
            f"{path} is none of the archives of {source.name} ({', '.join(source.archives)}): its SHA-256 is {found}. "
            "Get it from the official place, or extract it and pass the folder."
        )
    return path


def extract(archive: Path, folder: Path, wanted: Collection[str]) -> list[Path]:
    """Take the files called ``wanted`` out of a verified tar archive, flat, into ``folder``.

    Only regular files are taken, by their base name, so that no member can be written anywhere else; members pass
    Python's ``data`` filter besides.
    """
    taken = []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = folder / Path(member.name).name
                if not member.isreg() or path.name not in wanted:
                    continue
                tarfile.data_filter(member, str(folder))
                with disk_errors(path):
                    tar.extract(member.replace(name=path.name), folder, filter="data")
                taken.append(path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{archive} is not a whole archive ({error}). Fetch it again.") from error
    return taken


def _take(source: Source, path: Path, raw: Path) -> None:
    """Copy a file of the set into ``raw``, or extract those of an archive; refuse one that is not as published."""
    taken = [raw / path.name]
    if source.holds(path):
        with disk_errors(raw):
            shutil.copyfile(path, taken[0])
    else:
        taken = extract(path, raw, {name for known in source.contents for name in (known, f"{known}.gz")})
    if not taken:
        raise DamagedFileError(f"{path} holds no files of {source.name}. Get it from an official place.")
    for one in taken:
        wrong = _mismatches(source, one)
        if wrong:
            raise DamagedFileError(
                f"{one.name} is not the published file of {source.name}: {wrong[0]}. Get it from an official place; "
                "nothing was installed."
            )


def _mismatches(source: Source, path: Path) -> list[str]:
    """Return how the content of a file, unpacked, differs from the published digests: any one of them is good."""
    found = [mismatch(path, digest, unpacked=True) for digest in source.contents[path.name.removesuffix(".gz")]]
    return [] if None in found else [text for text in found if text]
