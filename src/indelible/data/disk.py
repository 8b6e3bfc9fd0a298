"""Folders that appear whole or not at all, archives that cannot write outside them, digests of what arrived."""

import contextlib
import errno
import gzip
import hashlib
import shutil
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from indelible.base.errors import DamagedFileError, StorageError

__all__ = ["check_digests", "disk_errors", "extract", "hash_file", "replacing_folder"]

_CHUNK = 1 << 20
_STALE_SECONDS = 3600


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the file system's refusals while writing to ``path`` into :class:`StorageError`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            text = f"cannot write {path}: the disk is full. Free some space and run the command again."
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            text = f"cannot write {path}: permission denied. Choose another folder."
        else:
            text = f"cannot write {path}: {error}"
        raise StorageError(text) from error


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


def hash_file(path: Path, algorithms: Collection[str], *, unpacked: bool = False) -> dict[str, str]:
    """Return digests of a file as hexadecimal, all in one pass.

    Args:
        path: The file.
        algorithms: Names that :mod:`hashlib` knows.
        unpacked: Hash what a gzip file holds rather than the file itself; other files are hashed as they are.
    """
    found = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    try:
        with _open(path, unpacked) as handle:
            while chunk := handle.read(_CHUNK):
                for digest in found.values():
                    digest.update(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}). Fetch it again.") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Check the path and its permissions.") from error
    return {name: digest.hexdigest() for name, digest in found.items()}


def _open(path: Path, unpacked: bool) -> IO[bytes]:
    if unpacked:
        with path.open("rb") as handle:
            unpacked = handle.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if unpacked else path.open("rb")


def check_digests(path: Path, digests: Sequence[str], *, what: str, remedy: str) -> None:
    """Refuse a file that does not have all of ``digests`` (``"sha256:..."``).

    Raises:
        DamagedFileError: A digest differs; the message names ``what`` and both digests and ends in ``remedy``.
    """
    wanted = dict(digest.split(":", 1) for digest in digests)
    found = hash_file(path, wanted)
    for algorithm, digest in wanted.items():
        if found[algorithm] != digest:
            raise DamagedFileError(
                f"{what} is not the expected file: expected {algorithm} {digest}, found {found[algorithm]} "
                f"({path.stat().st_size:,} bytes). {remedy}"
            )


def extract(archive: Path, folder: Path, wanted: Collection[str]) -> list[Path]:
    """Take the files called ``wanted`` out of a verified tar or zip archive, flat, into ``folder``.

    Only regular files are taken, by their base name, so that no member can be written anywhere else; tar members
    pass Python's ``data`` filter besides.
    """
    taken = []
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as bundle:
                for info in bundle.infolist():
                    name = Path(info.filename).name
                    if not info.is_dir() and name in wanted:
                        with bundle.open(info) as content:
                            taken.append(_save(content, folder / name))
        else:
            with tarfile.open(archive) as tar:
                for member in tar:
                    name = Path(member.name).name
                    if not member.isreg() or name not in wanted:
                        continue
                    tarfile.data_filter(member, str(folder))
                    handle = tar.extractfile(member)
                    if handle is not None:
                        taken.append(_save(handle, folder / name))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{archive} is not a whole archive ({error}). Fetch it again.") from error
    return taken


def _save(content: IO[bytes], path: Path) -> Path:
    with disk_errors(path), path.open("wb") as handle:
        shutil.copyfileobj(content, handle, _CHUNK)
    return path
