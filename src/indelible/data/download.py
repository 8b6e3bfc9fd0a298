"""Downloads that can be interrupted: resumed where they stopped, checked by digest, renamed only when whole.

Bytes go to ``NAME.part``; ``NAME.part.json`` remembers the address and the server's mark of the version (ETag or date).
A later call asks for the rest (HTTP Range, If-Range). A server that cannot do that, or whose file has changed, sends
the whole file and the download starts over. A file whose digest is wrong is deleted and refused, never used.
"""

import contextlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.files import write_json
from indelible.base.progress import Progress
from indelible.data.disk import check_digests, disk_errors

try:
    import fcntl
except ImportError:  # not a POSIX system: two downloads at once are then caught by the digest alone
    fcntl = None  # type: ignore[assignment]

__all__ = ["Patience", "UnreachableError", "download"]

_CHUNK = 1 << 16
_AGENT = "indelible"
_GIVE_UP = frozenset({400, 401, 403, 404, 405, 406, 407, 410, 451})


class UnreachableError(IndelibleError):
    """A server that does not answer, or not with the file; another place may still work."""


@dataclass(frozen=True)
class Patience:
    """How long to wait and how often to try again.

    Attributes:
        timeout: Seconds without a byte after which a connection counts as dropped.
        tries: Attempts without any progress before giving up.
        pause: Seconds before the first new attempt; doubled each time.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 1.0


def download(
    url: str, path: Path, digests: Sequence[str], *, remedy: str = "", patience: Patience | None = None
) -> None:
    """Download ``url`` to ``path``; nothing is done when a whole file is there already.

    Args:
        url: An http or https address.
        path: The file to create.
        digests: All that the file must hash to (``"sha256:..."``).
        remedy: What else a user can do, for error messages.
        patience: Time-outs and retries.

    Raises:
        UnreachableError: The server did not deliver; what arrived is kept for the next attempt.
        DamagedFileError: The file arrived whole but is another one.
        StorageError: The disk refused.
    """
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
    _transfer(url, part, patience or Patience())
    try:
        _accept(part, path, digests, url, remedy)
    except DamagedFileError:
        if not resumed:
            raise
        # Halves of two versions of a file, or a damaged half: the whole file may still be good.
        _transfer(url, part, patience or Patience())
        _accept(part, path, digests, url, remedy)


def _accept(part: Path, path: Path, digests: Sequence[str], url: str, remedy: str) -> None:
    """Rename the file when it is the right one; delete it when it is not."""
    deleted = f"It was deleted; run the command again. {remedy}".strip()
    try:
        check_digests(part, digests, what=f"{path.name} from {url}", remedy=deleted)
        with disk_errors(path):
            part.replace(path)
    except DamagedFileError:
        part.unlink(missing_ok=True)
        raise
    finally:
        _marks(part).unlink(missing_ok=True)


def _marks(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _start_over(handle: IO[bytes], part: Path) -> None:
    with disk_errors(part):
        handle.truncate(0)
        handle.seek(0, os.SEEK_END)
    _marks(part).unlink(missing_ok=True)


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


def _transfer(url: str, part: Path, patience: Patience) -> None:
    """Fill ``part`` until the server says that the file is whole."""
    failures = 0
    with _alone(part) as handle:
        while True:
            before = handle.seek(0, os.SEEK_END)
            try:
                if _once(url, handle, part, patience.timeout):
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
            if failures >= patience.tries:
                kept = f" {have:,} bytes are kept; run the command again to go on." if have else ""
                raise UnreachableError(f"cannot download {url}: {reason}.{kept}")
            time.sleep(patience.pause * 2 ** max(0, failures - 1))


def _once(url: str, handle: IO[bytes], part: Path, timeout: float) -> bool:
    """Ask for what is missing and append it; tell whether the file is whole."""
    have = handle.seek(0, os.SEEK_END)
    headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if version := _version(part, url):
            headers["If-Range"] = version
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        reply = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - the scheme was checked
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        # Either everything is here already, or the file on the server has become shorter.
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return True
        _start_over(handle, part)
        return False
    with reply:
        total = _begin(reply, handle, part, url, have)
        title = part.name.removesuffix(".part")
        with Progress(title, total or 0, done=handle.seek(0, os.SEEK_END), bytes_=True) as bar:
            while chunk := reply.read(_CHUNK):
                with disk_errors(part):
                    handle.write(chunk)
                bar.advance(len(chunk))
        return total is None or handle.tell() >= total


def _begin(reply: Any, handle: IO[bytes], part: Path, url: str, have: int) -> int | None:
    """Decide whether ``reply`` continues the file or starts it over; return the size of the whole file."""
    length = reply.headers.get("Content-Length")
    if reply.status == http.HTTPStatus.PARTIAL_CONTENT:
        unit, _, span = reply.headers.get("Content-Range", "").partition(" ")
        place, _, whole = span.partition("/")
        if unit == "bytes" and place.partition("-")[0] == str(have):
            return int(whole) if whole.isdigit() else have + int(length) if length else None
        raise http.client.HTTPException(f"the server sent the range {span!r}, asked was {have}-")
    if have:
        _start_over(handle, part)
    # Only a strong ETag promises the same bytes.
    tag = reply.headers.get("ETag", "")
    version = tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified", "")
    write_json(_marks(part), {"url": url, "version": version})
    return int(length) if length else None


def _version(part: Path, url: str) -> str:
    """Return the server's mark of the version that the unfinished file belongs to, if it gave one."""
    try:
        marks = json.loads(_marks(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(marks.get("version", "")) if isinstance(marks, dict) and marks.get("url") == url else ""
