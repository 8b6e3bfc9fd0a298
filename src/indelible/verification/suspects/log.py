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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

import torch
from filelock import lock_descriptor
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError, InputError, StorageError
from indelible.base.files import canonical_json
from indelible.base.progress import Progress
from indelible.data.digests import image_digests
from indelible.verification.suspects.http import HttpSuspect
from indelible.verification.suspects.outputs import BadAnswerError
from indelible.verification.suspects.suspect import Suspect, answers

_FORMAT = 1
_BATCH = 32


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
    _asked: list[str] | None = None

    def _fail(self, why: str) -> DamagedFileError:
        return DamagedFileError(f"{self.name}, line {self.lines + 1}: {why}. The log was altered, or is not a log.")

    def read(self, line: bytes) -> None:
        """Check the next line, and take it into account."""
        try:
            entry = json.loads(line)
            same = isinstance(entry, dict) and canonical_json(entry) == line
        except (ValueError, RecursionError) as error:
            raise self._fail(f"not JSON ({error!s:.80})") from error
        if not same:
            raise self._fail("not a JSON object in canonical form")
        if entry.get("prev") != self.head:
            raise self._fail("it does not continue the line before it")
        event = entry.get("event")
        if (event == "start") != (self.lines == 0):
            raise self._fail("the event 'start' belongs to the first line and to no other")
        if event == "start":
            self._start(entry)
        elif event == "ask":
            self._ask(entry)
        elif event in {"retry", "answer"}:
            if self._asked is None or entry.get("request") != self.requests - 1:
                raise self._fail(f"an event {event!r} without its question")
            if event == "retry":
                self.sent += len(self._asked)
            else:
                self._answer(entry)
        else:
            raise self._fail(f"unknown event {event!r:.40}")
        self.head = hashlib.sha256(line).hexdigest()
        self.size += len(line) + 1
        self.lines += 1

    def _start(self, entry: Mapping[str, Any]) -> None:
        if entry.get("format") != _FORMAT:
            raise self._fail(f"format {entry.get('format')!r:.20}, this version reads {_FORMAT}")
        classes, suspect, about = (entry.get(name) for name in ("classes", "suspect", "about"))
        if type(classes) is not int or classes < 2 or not isinstance(suspect, dict) or not isinstance(about, dict):
            raise self._fail("it does not say who is asked and for how many classes")
        self.classes, self.suspect, self.about = classes, suspect, about

    def _ask(self, entry: Mapping[str, Any]) -> None:
        images = entry.get("images")
        if not isinstance(images, list) or not images or not all(map(is_hash, images)):
            raise self._fail("a question without digests of images")
        if entry.get("request") != self.requests or len(set(images)) != len(images):
            raise self._fail("questions are not numbered one after the other, or one holds an image twice")
        if any(one in self.answers for one in images):
            raise self._fail("an image that was answered already is asked again")
        self._asked, self.requests, self.sent = images, self.requests + 1, self.sent + len(images)

    def _answer(self, entry: Mapping[str, Any]) -> None:
        labels = entry.get("labels")
        if self._asked is None or not isinstance(labels, list) or len(labels) != len(self._asked) or not all(
            type(label) is int and 0 <= label < self.classes for label in labels
        ):  # fmt: skip
            raise self._fail("an answer is not one label 0..classes - 1 for each image")
        self.answers.update(zip(self._asked, labels, strict=True))
        self._asked = None


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


class QueryLog:
    """A log that is being written; to be used as a context manager, by one process at a time.

    The log of an earlier session is continued; one of another suspect, or about something else, is refused.
    """

    def __init__(
        self, path: str | Path, *, classes: int, suspect: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:  # fmt: skip
        self.path = Path(path)
        self._start = {"event": "start", "format": _FORMAT, "classes": classes, "suspect": suspect, "about": about}
        self.recorded = Recorded(str(path))
        self._handle: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self.path.open("a+b")
            free = lock_descriptor(self._handle.fileno(), blocking=False)
            self._handle.seek(0)
            content = self._handle.read() if free else b""
        except OSError as error:
            raise StorageError(f"cannot write the query log {self.path}: {error.strerror}.") from error
        try:
            if not free:
                raise InputError(f"another process is writing {self.path}. Wait for it, or name another log.")
            self.recorded = parse_log(content, str(self.path), torn=True)
            self._handle.truncate(self.recorded.size)
            if self.recorded.lines == 0:
                self._append(self._start)
            self._check_same()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self._handle.close()
            self._handle = None

    def ask(self, images: Sequence[str]) -> None:
        """Write down that images are about to be sent."""
        self._append({"event": "ask", "request": self.recorded.requests, "images": list(images)})

    def retry(self, cause: str) -> None:
        """Write down that the last question is about to be sent again."""
        self._append({"event": "retry", "request": self.recorded.requests - 1, "cause": cause[:200]})

    def answer(self, labels: Sequence[int]) -> None:
        """Write down the answers to the last question."""
        self._append({"event": "answer", "request": self.recorded.requests - 1, "labels": list(labels)})

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._handle is None:
            raise InputError("a query log is open only inside its `with` block.")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = canonical_json({**entry, "time": now, "prev": self.recorded.head})
        self.recorded.read(line)  # what cannot be read back is never written
        try:
            self._handle.write(line + b"\n")
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            raise StorageError(f"cannot write the query log {self.path}: {error.strerror}.") from error

    def _check_same(self) -> None:
        for name in ("classes", "suspect", "about"):
            if canonical_json(getattr(self.recorded, name)) != canonical_json(self._start[name]):
                raise InputError(
                    f"{self.path} is the log of another session: its {name} differ. Name another log, or give the "
                    "same command to continue."
                )


class BudgetError(InputError):
    """More queries are needed than may be asked."""


class LoggedSuspect:
    """Answers from the log where it can, and asks where it must.

    ``budget`` is how many images may be sent in all, over all sessions and retries; None for no limit.
    """

    def __init__(self, inner: Suspect, log: QueryLog, *, classes: int, budget: int | None = None) -> None:
        self._inner, self._log, self._classes, self._budget = inner, log, classes, budget
        self._batch = inner.batch if isinstance(inner, HttpSuspect) else _BATCH

    def missing(self, images: Tensor) -> Tensor:
        """Return the rows of ``images`` that the log has no answer to, each different image once: int64."""
        seen = set(self._log.recorded.answers)
        rows = []
        for row, digest in enumerate(image_digests(images)):
            if digest not in seen:
                seen.add(digest)
                rows.append(row)
        return torch.tensor(rows, dtype=torch.int64)

    def ask_all(self, images: Tensor) -> None:
        """Ask what is missing, in the order of ``images``, if the budget suffices; retries may use it up later."""
        rows = self.missing(images)
        self._check_budget(len(rows), f"{len(rows)} images are still to be asked")
        with Progress("asking the suspect", len(rows)) as bar:
            for part in torch.split(rows, self._batch):
                if len(part):
                    self._ask(images[part])
                    bar.advance(len(part))

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image."""
        self.ask_all(images)
        known = self._log.recorded.answers
        return torch.tensor([known[digest] for digest in image_digests(images)], dtype=torch.int64)

    def _ask(self, images: Tensor) -> None:
        first = len(self._log.recorded.answers)
        self._check_budget(len(images), f"query {first} is next")
        self._log.ask(image_digests(images))
        labels = self._labels(images, first)
        self._log.answer(labels.tolist())

    def _labels(self, images: Tensor, first: int) -> Tensor:
        if isinstance(self._inner, HttpSuspect):
            self._inner.on_retry = lambda cause: self._again(cause, len(images), first)
            return self._inner.ask(images, first)
        try:
            return answers(self._inner, images, self._classes)
        except BadAnswerError:
            raise
        except InputError as error:
            raise BadAnswerError(f"among the {len(images)} queries from number {first} on: {error}") from error

    def _again(self, cause: str, count: int, first: int) -> None:
        self._check_budget(count, f"query {first} would be sent again ({cause})")
        self._log.retry(cause)

    def _check_budget(self, count: int, what: str) -> None:
        sent = self._log.recorded.sent
        if self._budget is not None and sent + count > self._budget:
            raise BudgetError(
                f"the budget is {self._budget} queries, {sent} were sent, and {what}. Raise the budget, or ask for "
                "fewer samples."
            )


def description(suspect: Any) -> Mapping[str, Any]:
    """Return what a suspect says of itself, for logs and evidence."""
    describe = getattr(suspect, "describe", None)
    return describe() if callable(describe) else {"kind": type(suspect).__name__}
