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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from indelible.base.errors import DamagedFileError, InputError, StorageError
from indelible.base.files import canonical_json

try:
    import fcntl
except ImportError:  # not a POSIX system: two sessions at once are then found by the chain
    fcntl = None  # type: ignore[assignment]

__all__ = ["QueryLog", "Recorded", "parse_log", "read_log"]

_FORMAT = 1
_START = "0" * 64
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a log says.

    Attributes:
        suspect: Who was asked.
        about: What for.
        classes: Classes of the key.
        answers: Label of each image that was answered, by its digest, in the order of the answers.
        sent: Images sent in all, retries included.
        requests: Requests begun.
        head: Digest of the last line.
        size: Bytes of whole lines.
    """

    suspect: Mapping[str, Any]
    about: Mapping[str, Any]
    classes: int
    answers: Mapping[str, int]
    sent: int
    requests: int
    head: str
    size: int


@dataclass
class _Reader:
    """Checks one line after the other."""

    name: str
    suspect: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    classes: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    requests: int = 0
    asked: list[str] | None = None
    head: str = _START
    size: int = 0
    lines: int = 0

    def fail(self, why: str) -> DamagedFileError:
        return DamagedFileError(f"{self.name}, line {self.lines + 1}: {why}. The log was altered, or is none.")

    def read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            same = isinstance(entry, dict) and canonical_json(entry) == line
        except (ValueError, RecursionError) as error:
            raise self.fail(f"not JSON ({error!s:.80})") from error
        if not same:
            raise self.fail("not a JSON object in canonical form")
        if entry.get("prev") != self.head:
            raise self.fail("it does not continue the line before it")
        event = entry.get("event")
        if (event == "start") != (self.lines == 0):
            raise self.fail("the event 'start' belongs to the first line and to no other")
        if event == "start":
            self._start(entry)
        elif event == "ask":
            self._ask(entry)
        elif event in {"retry", "answer"}:
            if self.asked is None or entry.get("request") != self.requests - 1:
                raise self.fail(f"an event {event!r} without its question")
            if event == "retry":
                self.sent += len(self.asked)
            else:
                self._answer(entry)
        else:
            raise self.fail(f"unknown event {event!r:.40}")
        self.head = hashlib.sha256(line).hexdigest()
        self.size += len(line) + 1
        self.lines += 1

    def _start(self, entry: Mapping[str, Any]) -> None:
        if entry.get("format") != _FORMAT:
            raise self.fail(f"format {entry.get('format')!r:.20}, this version reads {_FORMAT}")
        classes, suspect, about = (entry.get(name) for name in ("classes", "suspect", "about"))
        if type(classes) is not int or classes < 2 or not isinstance(suspect, dict) or not isinstance(about, dict):
            raise self.fail("it does not say who is asked and for how many classes")
        self.classes, self.suspect, self.about = classes, suspect, about

    def _ask(self, entry: Mapping[str, Any]) -> None:
        images = entry.get("images")
        if not isinstance(images, list) or not images or not all(
            isinstance(one, str) and _DIGEST.fullmatch(one) for one in images
        ):  # fmt: skip
            raise self.fail("a question without digests of images")
        if entry.get("request") != self.requests or len(set(images)) != len(images):
            raise self.fail("questions are not numbered one after the other, or one holds an image twice")
        if any(one in self.answers for one in images):
            raise self.fail("an image that was answered already is asked again")
        self.asked, self.requests, self.sent = images, self.requests + 1, self.sent + len(images)

    def _answer(self, entry: Mapping[str, Any]) -> None:
        labels = entry.get("labels")
        if self.asked is None or not isinstance(labels, list) or len(labels) != len(self.asked) or not all(
            type(label) is int and 0 <= label < self.classes for label in labels
        ):  # fmt: skip
            raise self.fail("an answer is not one label 0..classes - 1 for each image")
        self.answers.update(zip(self.asked, labels, strict=True))
        self.asked = None

    def recorded(self) -> Recorded:
        if self.lines == 0:
            raise self.fail("there is no whole line")
        return Recorded(
            suspect=self.suspect, about=self.about, classes=self.classes, answers=self.answers, sent=self.sent,
            requests=self.requests, head=self.head, size=self.size,
        )  # fmt: skip


def parse_log(content: bytes, name: str = "the query log", *, torn: bool = False) -> Recorded:
    """Read a log and check every line.

    Args:
        content: The whole file.
        name: How to call it in errors.
        torn: Allow a last line without its end, as a killed session leaves it.

    Raises:
        DamagedFileError: A line was altered, removed or inserted; the message says which.
    """
    return _parsed(content, name, torn=torn).recorded()


def _parsed(content: bytes, name: str, *, torn: bool) -> _Reader:
    reader = _Reader(name)
    lines = content.split(b"\n")
    if lines[-1] and not torn:
        raise DamagedFileError(f"{name}: the last line is not whole. A session is under way, or was killed.")
    for line in lines[:-1]:
        reader.read(line)
    return reader


def read_log(path: str | Path) -> Recorded:
    """Read a log of a finished session."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"there is no query log {path} ({error.strerror}).") from error
    return parse_log(content, str(path))


class QueryLog:
    """A log that is being written; to be used as a context manager, by one process at a time.

    Args:
        path: The file; one of an earlier session is continued.
        classes: Classes of the key.
        suspect: Who is asked.
        about: What for (digest of the key, of a commitment ...). A log about something else is refused.
    """

    def __init__(
        self, path: str | Path, *, classes: int, suspect: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:  # fmt: skip
        self.path = Path(path)
        self._start = {"event": "start", "format": _FORMAT, "classes": classes, "suspect": suspect, "about": about}
        self._reader = _Reader(str(path))
        self._handle: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self.path.open("a+b")
            if fcntl is not None:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._handle.seek(0)
            content = self._handle.read()
        except BlockingIOError as error:
            raise InputError(f"another process is writing {self.path}. Wait for it, or name another log.") from error
        except OSError as error:
            raise StorageError(f"cannot write the query log {self.path}: {error.strerror}.") from error
        try:
            self._reader = _parsed(content, str(self.path), torn=True)
            self._handle.truncate(self._reader.size)
            if self._reader.lines == 0:
                self._append(self._start)
            self._check_same()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self._handle.close()
            self._handle = None

    @property
    def recorded(self) -> Recorded:
        """What the log says by now."""
        return self._reader.recorded()

    @property
    def answers(self) -> Mapping[str, int]:
        """Label of each image answered so far, by its digest."""
        return self._reader.answers

    @property
    def sent(self) -> int:
        """Images sent so far, retries included."""
        return self._reader.sent

    def ask(self, images: Sequence[str]) -> None:
        """Write down that images are about to be sent."""
        self._append({"event": "ask", "request": self._reader.requests, "images": list(images)})

    def retry(self, cause: str) -> None:
        """Write down that the last question is about to be sent again."""
        self._append({"event": "retry", "request": self._reader.requests - 1, "cause": cause[:200]})

    def answer(self, labels: Sequence[int]) -> None:
        """Write down the answers to the last question."""
        self._append({"event": "answer", "request": self._reader.requests - 1, "labels": list(labels)})

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._handle is None:
            raise InputError("a query log is open only inside its `with` block.")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = canonical_json({**entry, "time": now, "prev": self._reader.head})
        self._reader.read(line)  # what cannot be read back is never written
        try:
            self._handle.write(line + b"\n")
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            raise StorageError(f"cannot write the query log {self.path}: {error.strerror}.") from error

    def _check_same(self) -> None:
        for name, found in (
            ("classes", self._reader.classes), ("suspect", self._reader.suspect), ("about", self._reader.about)
        ):  # fmt: skip
            if canonical_json(found) != canonical_json(self._start[name]):
                raise InputError(
                    f"{self.path} is the log of another session: its {name} differ. Name another log, or give the "
                    "same command to go on."
                )
