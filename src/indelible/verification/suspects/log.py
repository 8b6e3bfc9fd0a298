"""The query log: every question and every answer, in order, so that nothing is asked twice and anybody can recount.

One JSON object a line, in canonical form, only ever appended, synced to disk before and after each request. Each line
holds the SHA-256 of the line before it (``prev``), so that a changed, removed or inserted line is found; the digest of
the last line, the *head*, stands for the whole log.

| event | fields | when |
|---|---|---|
| ``start`` | ``format``, ``classes``, ``suspect``, ``about`` | first line: who is asked, and what for |
| ``ask`` | ``request``, ``images`` (digests) | before a request is sent |
| ``retry`` | ``request``, ``cause`` | before it is sent again |
| ``answer`` | ``request``, ``labels`` | after a whole and valid reply |

A run that is killed leaves at most one ``ask`` without its ``answer``: that request was perhaps seen by the server, its
answer was not. It is the only one that a later session asks again. A torn last line is cut off.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import torch
from filelock import lock_descriptor
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError, InputError, StorageError
from indelible.base.files import canonical_json
from indelible.data.digests import image_digests

_FORMAT = 1


@dataclass
class Recorded:
    """What a log says, after checking one line after the other.

    ``answers`` holds the label of each image by its digest, in the order of the answers; ``sent`` counts images,
    retries included; ``requests`` those begun; ``head`` is the digest of the last line and ``size`` the bytes of whole
    lines.
    """

    name: str
    suspect: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    classes: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    requests: int = 0
    head: str = "0" * 64
    size: int = 0
    lines: int = 0
    _asked: list[str] = field(default_factory=list)

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image; all of them must have been answered."""
        return torch.tensor([self.answers[digest] for digest in image_digests(images)], dtype=torch.int64)

    def _need(self, holds: bool, why: str) -> None:
        if not holds:
            raise DamagedFileError(f"{self.name}, line {self.lines + 1}: {why}. The log was altered, or is not a log.")

    def read(self, line: bytes) -> None:
        """Check the next line, and take it into account."""
        try:
            entry = json.loads(line)
            same = isinstance(entry, dict) and canonical_json(entry) == line
        except (ValueError, RecursionError) as error:
            same, entry = False, str(error)
        self._need(same, f"not a JSON object in canonical form ({entry!s:.80})")
        self._need(entry.get("prev") == self.head, "it does not continue the line before it")
        event = entry.get("event")
        self._need((event == "start") == (self.lines == 0), "'start' belongs to the first line and to no other")
        if event == "start":
            self._start(entry)
        elif event == "ask":
            self._ask(entry)
        else:
            self._need(event in {"retry", "answer"}, f"unknown event {event!r:.40}")
            follows = bool(self._asked) and entry.get("request") == self.requests - 1
            self._need(follows, f"an event {event!r} without its question")
            if event == "retry":
                self.sent += len(self._asked)
            else:
                self._answer(entry)
        self.head = hashlib.sha256(line).hexdigest()
        self.size += len(line) + 1
        self.lines += 1

    def _start(self, entry: Mapping[str, Any]) -> None:
        known = entry.get("format") == _FORMAT
        self._need(known, f"format {entry.get('format')!r:.20}, this version reads {_FORMAT}")
        given: list[Any] = [entry.get(name) for name in ("classes", "suspect", "about")]
        classes, suspect, about = given
        whole = type(classes) is int and classes >= 2 and isinstance(suspect, dict) and isinstance(about, dict)
        self._need(whole, "it does not say who is asked and for how many classes")
        self.classes, self.suspect, self.about = classes, suspect, about

    def _ask(self, entry: Mapping[str, Any]) -> None:
        images: Any = entry.get("images")
        named = isinstance(images, list) and bool(images) and all(map(is_hash, images))
        self._need(named, "a question without digests of images")
        once = entry.get("request") == self.requests and len(set(images)) == len(images)
        self._need(once, "questions are not numbered one after the other, or one holds an image twice")
        self._need(self.answers.keys().isdisjoint(images), "an image that was answered already is asked again")
        self._asked, self.requests, self.sent = images, self.requests + 1, self.sent + len(images)

    def _answer(self, entry: Mapping[str, Any]) -> None:
        labels: Any = entry.get("labels")
        whole = isinstance(labels, list) and len(labels) == len(self._asked)
        known = whole and all(type(one) is int and 0 <= one < self.classes for one in labels)
        self._need(known, "an answer is not one label 0..classes - 1 for each image")
        self.answers.update(zip(self._asked, labels, strict=True))
        self._asked = []


def parse_log(content: bytes, name: str = "the query log", *, torn: bool = False) -> Recorded:
    """Read a log and check every line; with ``torn``, it may be empty or end in a part of a line, as a killed session.

    Raises:
        DamagedFileError: A line was altered, removed or inserted; the message says which.
    """
    found = Recorded(name)
    lines = content.split(b"\n")
    if not torn and (lines[-1] or len(lines) < 2):
        raise DamagedFileError(f"{name}: the last line is not whole. A session is still running, or was killed.")
    for line in lines[:-1]:
        found.read(line)
    return found


def read_log(path: str | Path) -> Recorded:
    """Read a log of a finished session."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"there is no query log {path} ({error.strerror}).") from error
    return parse_log(content, str(path))


@dataclass
class QueryLog:
    """A log that is being written; :func:`query_log` opens it."""

    recorded: Recorded
    handle: IO[bytes]

    def write(self, event: str, **fields: Any) -> None:
        """Write down what is about to be asked (``images``), asked again (``cause``), or the answer (``labels``)."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = {} if event == "start" else {"request": self.recorded.requests - (event != "ask")}
        line = canonical_json({"event": event, **number, **fields, "time": now, "prev": self.recorded.head})
        self.recorded.read(line)  # what cannot be read back is never written
        try:
            self.handle.write(line + b"\n")
            self.handle.flush()
            os.fsync(self.handle.fileno())
        except OSError as error:
            raise StorageError(f"cannot write the query log {self.recorded.name}: {error.strerror}.") from error


@contextlib.contextmanager
def query_log(
    path: str | Path, *, classes: int, suspect: Mapping[str, Any], about: Mapping[str, Any]
) -> Iterator[QueryLog]:  # fmt: skip
    """Open a log to be written, by one process at a time.

    The log of an earlier session is continued; one of another suspect, or about something else, is refused.
    """
    place, session = Path(path), {"classes": classes, "suspect": suspect, "about": about}
    with contextlib.ExitStack() as opened:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            handle = place.open("a+b")
            opened.callback(_close, handle)
            free = lock_descriptor(handle.fileno(), blocking=False)
            handle.seek(0)
            content = handle.read() if free else b""
        except OSError as error:
            raise StorageError(f"cannot write the query log {path}: {error.strerror}.") from error
        if not free:
            raise InputError(f"another process is writing {path}. Wait for it, or name another log.")
        log = QueryLog(parse_log(content, str(path), torn=True), handle)
        handle.truncate(log.recorded.size)
        if log.recorded.lines == 0:
            log.write("start", format=_FORMAT, **session)
        for name, value in session.items():
            if canonical_json(getattr(log.recorded, name)) != canonical_json(value):
                raise InputError(
                    f"{path} is the log of another session: its {name} differ. Name another log, or give the same "
                    "command to continue."
                )
        yield log


def _close(handle: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what could not be written was told by `write`
        handle.close()


def description(suspect: Any) -> Mapping[str, Any]:
    """Return what a suspect says of itself, for logs and evidence."""
    describe = getattr(suspect, "describe", None)
    return describe() if callable(describe) else {"kind": type(suspect).__name__}
