"""Bring a named data set to disk, and read it from there.

A fetched set is a folder with ``raw/`` (the files as published), ``manifest.json`` (their digests and where they came
from) and ``images.safetensors`` (the decoded images). It appears in one rename, after everything in it has been
checked. The decoded images are bound to the files (a digest over their digests) and to their own content; where either
does not fit, the files are decoded again. A set on a read-only disk works without them.
"""

import contextlib
import hashlib
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError, StorageError
from indelible.base.files import (
    canonical_json,
    disk_errors,
    file_digest,
    read_json,
    read_tensors,
    tensor_digest,
    write_json,
    write_tensors,
)
from indelible.data.download import UnreachableError, check_digests, download, hash_file
from indelible.data.images import ImageData
from indelible.data.sources.source import Pair, Place, Source

MANIFEST = "manifest.json"
DECODED = "images.safetensors"
_FORMAT = 1
_DEPTH = 4
_STALE_SECONDS = 3600
_ARCHIVES = (".tar.gz", ".tgz", ".tar")


def install(source: Source, folder: Path, place: Place | Path, downloads: Path) -> None:
    """Put the data set ``source`` into ``folder``, whole or not at all; unfinished downloads wait in ``downloads``.

    ``place`` is one of the set's places, or a folder, archive or file that the user has already.
    """
    files = _obtain(source, place, downloads) if isinstance(place, Place) else _collect(source, place)
    with replacing_folder(folder) as temporary:
        raw = temporary / "raw"
        with disk_errors(raw):
            raw.mkdir()
        for path in files:
            _take(source, path, raw)
        _verify_contents(source, raw)
        pair = _decode(source, raw)
        listed = {
            path.name: {"sha256": file_digest(path), "size": path.stat().st_size} for path in sorted(raw.iterdir())
        }
        origin = place.name if isinstance(place, Place) else "local files"
        manifest = {"format": _FORMAT, "name": source.name, "place": origin, "files": listed}
        write_json(temporary / MANIFEST, manifest)
        _keep_decoded(temporary, manifest, pair)
    if isinstance(place, Place) and not place.folder:
        shutil.rmtree(downloads, ignore_errors=True)


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder; when the block ends well, it takes the place of ``target``.

    A process that is killed leaves the old folder, the new one, or - between two renames - the old one beside a
    missing target; never a mixture.
    """
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        temporary.chmod(0o755)
        yield temporary
        with disk_errors(target):
            old = temporary.with_suffix(".old")
            if target.exists():
                target.rename(old)
            temporary.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sweep(target: Path) -> None:
    """Remove what killed processes left behind; a folder touched within the hour may belong to a living one."""
    for left in target.parent.glob(f".{target.name}.*"):
        if left.suffix in {".part", ".old"} and left.is_dir() and time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def read_installed(source: Source, folder: Path) -> Pair:
    """Return ``(train, test)`` of a fetched set: as decoded before, or from its files after checking them."""
    manifest = read_manifest(folder)
    with contextlib.suppress(DamagedFileError):
        tensors, metadata = read_tensors(folder / DECODED)
        if metadata == _binding(manifest, tensors):
            train, test = (
                ImageData(tensors[f"{part}_images"], tensors[f"{part}_labels"], source.classes, source.name)
                for part in ("train", "test")
            )
            return train, test
    _verify_raw(folder, manifest)
    pair = _decode(source, folder / "raw")
    _keep_decoded(folder, manifest, pair)
    return pair


def _keep_decoded(folder: Path, manifest: dict[str, Any], pair: Pair) -> None:
    """Store decoded images; a disk that refuses is no error, the images can be decoded again."""
    tensors: dict[str, Tensor] = {}
    for part, data in zip(("train", "test"), pair, strict=True):
        tensors |= {f"{part}_images": data.images, f"{part}_labels": data.labels}
    with contextlib.suppress(StorageError):
        write_tensors(folder / DECODED, tensors, _binding(manifest, tensors))


def _binding(manifest: dict[str, Any], tensors: Any) -> dict[str, Any]:
    """Return what binds decoded images to the files they come from and to their content."""
    files = hashlib.sha256(canonical_json(manifest["files"])).hexdigest()
    return {"format": _FORMAT, "files": files, "tensors": tensor_digest(tensors)}


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


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the list of a fetched set's files."""
    manifest = read_json(folder / MANIFEST)
    with contextlib.suppress(TypeError, KeyError, AttributeError):
        if manifest["format"] == _FORMAT and all(entry["sha256"] for entry in manifest["files"].values()):
            return dict(manifest)
    raise DamagedFileError(f"{folder / MANIFEST} is not a list of files. Delete {folder} and fetch the set again.")


def _verify_raw(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse a fetched set whose files have changed since the fetch."""
    for name, entry in manifest["files"].items():
        path = folder / "raw" / name
        remedy = f"Run 'indelible data fetch {manifest.get('name')}' again."
        if not path.is_file():
            raise DamagedFileError(f"{path} is missing. {remedy}")
        check_digests(path, (f"sha256:{entry['sha256']}",), what=str(path), remedy=remedy)


def intact(folder: Path) -> bool:
    """Tell whether a whole, unaltered set is in ``folder``."""
    try:
        _verify_raw(folder, read_manifest(folder))
    except DamagedFileError:
        return False
    return True


def _obtain(source: Source, place: Place, downloads: Path) -> list[Path]:
    """Download the files of a place, or find them where the system's package manager put them."""
    others = [other.name for other in source.places if other is not place]
    remedy = f"Other places: --from {' or '.join(others)}." if others else ""
    if place.folder:
        found = [Path(place.folder) / file.name for file in place.files]
        missing = [path for path in found if not path.is_file()]
        if missing:
            raise UnreachableError(f"{missing[0]} does not exist: install the package {place.package}. {remedy}")
        return found
    for file in place.files:
        try:
            download(file.url, downloads / file.name, file.digests, remedy=remedy)
        except UnreachableError as error:
            raise UnreachableError(f"{error} {remedy} Or get the file yourself and pass it with --from.") from error
    return [downloads / file.name for file in place.files]


def _collect(source: Source, path: Path) -> list[Path]:
    """Find the set's files in what the user has, checking every archive that has a known name."""
    if path.is_file():
        return [_known_archive(source, path)]
    if not path.is_dir():
        names = ", ".join(place.name for place in source.places) or "none"
        raise InputError(
            f"{path} is neither a place of {source.name} (places: {names}) nor a folder or file. Check the path."
        )
    archives = {file.name for place in source.places for file in place.files if file.name.endswith(_ARCHIVES)}
    candidates: dict[str, list[Path]] = {}
    for found in _walk(path, _DEPTH):
        name = found.name.removesuffix(".gz")
        if found.name in archives:
            return [_known_archive(source, found)]
        if name in source.contents:
            candidates.setdefault(name, []).append(found)
    if not candidates:
        names = ", ".join(sorted(archives | set(source.contents)))
        raise InputError(f"{path} holds no files of {source.name}: expected some of {names}. Check the path.")
    # Of several files with one name (MNIST beside Fashion-MNIST), the one with the right content.
    return [
        next((one for one in found if len(found) > 1 and _matches(one, source.contents[name])), found[0])
        for name, found in candidates.items()
    ]


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif depth > 1 and path.is_dir() and not path.name.startswith("."):
            yield from _walk(path, depth - 1)


def _known_archive(source: Source, path: Path) -> Path:
    """Accept a file that is, by name or by digest, one that the set is published in."""
    files = [file for place in source.places for file in place.files]
    remedy = "Get it from the official place, or extract it and pass the folder."
    named = [file for file in files if file.name == path.name]
    if named and path.name.endswith(_ARCHIVES):
        check_digests(path, named[0].digests, what=str(path), remedy=remedy)
        return path
    if path.name.removesuffix(".gz") in source.contents:
        return path
    found = hash_file(path, {"sha256", *(digest.partition(":")[0] for file in files for digest in file.digests)})
    ours = {f"{algorithm}:{digest}" for algorithm, digest in found.items()}
    if any(file.digests and ours.issuperset(file.digests) for file in files):
        return path
    raise DamagedFileError(
        f"{path} is none of the archives of {source.name} ({', '.join(file.name for file in files)}): its SHA-256 is "
        f"{found['sha256']}. {remedy}"
    )


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
    """Extract an archive into ``raw``, or copy a plain file there."""
    if path.name.removesuffix(".gz") in source.contents:
        with disk_errors(raw / path.name):
            shutil.copyfile(path, raw / path.name)
    else:
        wanted = {name for known in source.contents for name in (known, f"{known}.gz")}
        if not extract(path, raw, wanted):
            raise DamagedFileError(f"{path} holds no files of {source.name}. Get it from an official place.")


def _verify_contents(source: Source, raw: Path) -> None:
    for path in sorted(raw.iterdir()):
        good = source.contents.get(path.name.removesuffix(".gz"), ())
        if good and not _matches(path, good):
            algorithm, digest = good[0].split(":", 1)
            found = hash_file(path, [algorithm], unpacked=True)[algorithm]
            raise DamagedFileError(
                f"{path.name} is not the published file of {source.name}: expected {algorithm} {digest}, found "
                f"{found}. Get it from an official place; nothing was installed."
            )


def _matches(path: Path, good: Sequence[str]) -> bool:
    """Tell whether the content of a file, unpacked, has one of the good digests."""
    found = hash_file(path, {text.partition(":")[0] for text in good}, unpacked=True)
    return any(f"{algorithm}:{digest}" in good for algorithm, digest in found.items())
