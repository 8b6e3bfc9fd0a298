"""Any suspect behind a query log: what is in the log is not asked again, what is asked is in the log."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.data.digests import image_digests
from indelible.verify.suspects.http import HttpSuspect
from indelible.verify.suspects.log import QueryLog
from indelible.verify.suspects.outputs import BadAnswerError
from indelible.verify.suspects.protocol import Suspect, answers

__all__ = ["BudgetError", "LoggedSuspect"]

_BATCH = 32


class BudgetError(InputError):
    """More queries are needed than may be asked."""


class LoggedSuspect:
    """Answers from the log where it can, and asks where it must.

    Args:
        inner: The suspect to ask.
        log: An open log.
        classes: Classes of the key.
        budget: Images that may be sent in all, over all sessions and retries; None for no limit.
    """

    def __init__(self, inner: Suspect, log: QueryLog, *, classes: int, budget: int | None = None) -> None:
        self._inner, self._log, self._classes, self._budget = inner, log, classes, budget
        self._batch = inner.batch if isinstance(inner, HttpSuspect) else _BATCH

    def missing(self, images: Tensor) -> Tensor:
        """Return the rows of ``images`` that the log has no answer to, each different image once: int64."""
        seen = set(self._log.answers)
        rows = []
        for row, digest in enumerate(image_digests(images)):
            if digest not in seen:
                seen.add(digest)
                rows.append(row)
        return torch.tensor(rows, dtype=torch.int64)

    def ask_all(self, images: Tensor) -> None:
        """Ask what is missing, in the order of ``images``.

        Raises:
            BudgetError: Before anything is asked, if the budget cannot suffice; later, if retries have used it up.
        """
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
        known = self._log.answers
        return torch.tensor([known[digest] for digest in image_digests(images)], dtype=torch.int64)

    def _ask(self, images: Tensor) -> None:
        first = len(self._log.answers)
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
        if self._budget is not None and self._log.sent + count > self._budget:
            raise BudgetError(
                f"the budget is {self._budget} queries, {self._log.sent} were sent, and {what}. Raise the budget, or "
                "ask for fewer samples."
            )


def description(suspect: Any) -> Mapping[str, Any]:
    """Return what a suspect says of itself, for logs and evidence."""
    describe = getattr(suspect, "describe", None)
    return describe() if callable(describe) else {"kind": type(suspect).__name__}
