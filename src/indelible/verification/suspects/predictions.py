"""A file of predictions that someone else made: no model and no network, only answers.

| file | content |
|---|---|
| ``.csv`` | a header ``digest,label`` or ``digest,p0,p1,...``; one line for each image |
| ``.jsonl`` | a query log, or one object a line with ``digest`` and ``label`` or ``scores`` (a list) |

A digest names an image (:func:`~indelible.data.digests.image_digests`); the file of questions that
``indelible verify --export`` writes holds it beside each image. Labels are those that were answered; of scores
the largest counts.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import file_digest
from indelible.data.digests import image_digests
from indelible.verification.suspects.answer_labels import BadAnswerError, as_array, labels_of
from indelible.verification.suspects.log import parse_log


class PredictionFile:
    """Answers from a file; ``about`` is what a query log was kept for, empty for other files."""

    def __init__(self, path: str | Path, *, classes: int) -> None:
        self.path = Path(path)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise InputError(f"there is no file of predictions {self.path} ({error.strerror}).") from error
        self.about: Mapping[str, Any] = {}
        self._answers = self._table(content, classes)
        if not self._answers:
            raise InputError(f"{self.path} holds no predictions.")

    def describe(self) -> dict[str, Any]:
        """Return what was read, for logs and evidence."""
        return {"kind": "predictions", "file": self.path.name, "digest": file_digest(self.path)}

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image; one that the file does not know is an error, never a miss."""
        digests = image_digests(images)
        missing = [number for number, digest in enumerate(digests) if digest not in self._answers]
        if missing:
            raise BadAnswerError(
                f"{self.path} has no prediction for {len(missing)} of {len(digests)} images, the first of them query "
                f"{missing[0]} (image {digests[missing[0]][:16]}...). It answers other questions, or not all: export "
                "them again, with the same key, data and settings."
            )
        return torch.tensor([self._answers[digest] for digest in digests], dtype=torch.int64)

    def _table(self, content: bytes, classes: int) -> dict[str, int]:
        if content.startswith(b'{"about":'):  # a query log starts with its first name in canonical order
            recorded = parse_log(content, str(self.path))
            if recorded.classes != classes:
                raise InputError(f"{self.path} is of {recorded.classes} classes, but the key is of {classes}.")
            self.about = recorded.about
            return dict(recorded.answers)
        try:
            text = content.decode()
            rows = list(self._csv(text) if self.path.suffix == ".csv" else self._lines(text))
        except (UnicodeDecodeError, csv.Error, RecursionError) as error:
            raise DamagedFileError(f"{self.path} is not a table of predictions ({error!s:.100}).") from error
        found: dict[str, int] = {}
        for number, (digest, answer) in enumerate(rows):
            self._need(is_hash(digest), number, "must name an image by its SHA-256")
            self._need(digest not in found, number, f"is a second one for {digest[:16]}...")
            label = labels_of(as_array([answer], first=number), count=1, classes=classes, first=number)
            found[digest] = int(label[0])
        return found

    def _need(self, holds: bool, number: int, why: str) -> None:
        if not holds:
            raise DamagedFileError(f"{self.path}: prediction {number} {why}.")

    def _csv(self, text: str) -> Iterator[tuple[Any, Any]]:
        head, *rows = list(csv.reader(io.StringIO(text), strict=True)) or [[]]
        if len(head) < 2 or head[0] != "digest":
            raise DamagedFileError(f"{self.path} must start with the line digest,label or digest,p0,p1,...")
        for number, row in enumerate(rows):
            self._need(len(row) == len(head), number, f"has {len(row)} columns")
            try:
                yield row[0], [float(value) for value in row[1:]]
            except ValueError as error:
                self._need(False, number, f"is not a number ({error!s:.60})")

    def _lines(self, text: str) -> Iterator[tuple[Any, Any]]:
        for number, line in enumerate(text.splitlines()):
            try:
                entry = json.loads(line)
            except ValueError as error:
                entry = None
                self._need(False, number, f"is not JSON ({error!s:.60})")
            answer = entry.get("label", entry.get("scores")) if isinstance(entry, dict) else None
            self._need(answer is not None, number, "has neither label nor scores")
            yield entry.get("digest"), answer
