"""Verify a suspect whose queries cost: planned before the first one, shuffled, logged, resumed.

A test is a function of the answers. So it is run twice: once as a dry run, against a stand-in that notes what is
asked, and once against the log. In between, the different images are asked in an order that mixes the key's samples
with the decoys and clean images, so that a server cannot tell from the order which are which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.base.seeding import generator
from indelible.data.digests import image_digests
from indelible.keys.key import Key
from indelible.verification.suspects.http import HttpSuspect
from indelible.verification.suspects.log import QueryLog, description, query_log
from indelible.verification.suspects.suspect import Suspect, answers
from indelible.verification.verdict import Verdict, verify

_Found = TypeVar("_Found")
_BATCH = 32


class BudgetError(InputError):
    """More queries are needed than may be asked."""


@dataclass
class LoggedSuspect:
    """Answers from the log where it can, and asks where it must.

    ``budget`` is how many images may be sent in all, over all sessions and retries; None for no limit.
    """

    inner: Suspect
    log: QueryLog
    budget: int | None = None

    def ask_all(self, images: Tensor) -> None:
        """Ask what is missing, in the order of ``images``, if the budget suffices; retries may use it up later."""
        known = self.log.recorded.answers
        rows = torch.tensor([row for name, row in _different(images).items() if name not in known], dtype=torch.int64)
        self._check_budget(len(rows), f"{len(rows)} images are still to be asked")
        batch = self.inner.format.batch if isinstance(self.inner, HttpSuspect) else _BATCH
        with Progress("asking the suspect", len(rows)) as bar:
            for part in rows.split(batch) if len(rows) else ():
                self._ask(images[part])
                bar.advance(len(part))

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image."""
        self.ask_all(images)
        return self.log.recorded.predict(images)

    def _ask(self, images: Tensor) -> None:
        first = len(self.log.recorded.answers)

        def again(cause: str) -> None:
            self._check_budget(len(images), f"query {first} would be sent again ({cause})")
            self.log.write("retry", cause=cause[:200])

        self._check_budget(len(images), f"query {first} is next")
        self.log.write("ask", images=image_digests(images))
        if isinstance(self.inner, HttpSuspect):
            self.inner.on_retry = again
            labels = self.inner.ask(images, first)
        else:
            labels = answers(self.inner, images, self.log.recorded.classes, first)
        self.log.write("answer", labels=labels.tolist())

    def _check_budget(self, count: int, what: str) -> None:
        sent = self.log.recorded.sent
        if self.budget is not None and sent + count > self.budget:
            raise BudgetError(
                f"the budget is {self.budget} queries, {sent} were sent, and {what}. Raise the budget, or ask for "
                "fewer samples."
            )


@dataclass
class _StandIn:
    """A stand-in that notes what it is asked and answers class 0."""

    asked: list[Tensor] = field(default_factory=list)

    def predict(self, images: Tensor) -> Tensor:
        """Note the images."""
        self.asked.append(images)
        return torch.zeros(len(images), dtype=torch.int64)


def _different(images: Tensor) -> dict[str, int]:
    """Return the first row of each different image by its digest, in order."""
    first: dict[str, int] = {}
    for row, digest in enumerate(image_digests(images)):
        first.setdefault(digest, row)
    return first


def planned(test: Callable[[Suspect], Any], *, seed: int) -> Tensor:
    """Return the images (uint8, (N, C, H, W)) that ``test`` would ask, each different one once, shuffled.

    What is asked must not depend on the answers.
    """
    stand_in = _StandIn()
    test(stand_in)
    images = torch.cat(stand_in.asked)
    rows = torch.tensor(list(_different(images).values()))
    return images[rows[torch.randperm(len(rows), generator=generator(seed, "questions"))]]


def verify_logged(
    suspect: Suspect, key: Key, carriers: Any, *, log: str | Path, budget: int | None = None,
    about: Mapping[str, Any] | None = None, **options: Any,
) -> Verdict:  # fmt: skip
    """Verify with a query log: an interrupted run continues when it is called again, and no answered query is repeated.

    The verdict can be computed again by giving the file ``log`` as the suspect. ``budget`` is how many images may be
    sent in all, retries and earlier sessions included; a plan that needs more raises BudgetError before anything is
    asked. ``about`` says what the log is kept for, by default the key's digest; ``options`` are those of
    :func:`indelible.verify`.
    """
    # A sequential test asks as it goes and stops early: nothing is planned, and its own order is the secret's.
    seed = None if options.get("procedure") == "sequential" else order_seed(key)
    verdict, _ = ask_logged(
        lambda asked: verify(asked, key, carriers, **options), suspect, log, classes=key.classes,
        about={"key": key.digest} if about is None else about, seed=seed, budget=budget,
    )  # fmt: skip
    return verdict


def ask_logged(
    test: Callable[[Suspect], _Found], suspect: Suspect, log: str | Path, *, classes: int, about: Mapping[str, Any],
    seed: int | None, budget: int | None,
) -> tuple[_Found, str]:  # fmt: skip
    """Return what ``test`` finds, and the head of the log; without a ``seed``, nothing is planned before."""
    plan = None if seed is None else planned(test, seed=seed)
    with query_log(log, classes=classes, suspect=description(suspect), about=about) as kept:
        asked = LoggedSuspect(suspect, kept, budget)
        if plan is not None:
            asked.ask_all(plan)
        found = test(asked)
        return found, kept.recorded.head


def order_seed(key: Key) -> int:
    """Return the seed of a key's order of questions: the same in every session, unknown to the suspect."""
    return int(key.digest[:15], 16)
