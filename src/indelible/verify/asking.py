"""Verification of a suspect that must be asked with care: planned before, shuffled, logged, resumed.

A test is a function of the answers. So it is run twice: once in *rehearsal*, against a stand-in that notes what is
asked, and once against the log. In between, the different images are asked in an order that mixes the key's samples
with the decoys and clean images, so that a server cannot tell from the order which are which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indelible.base.seeding import generator
from indelible.data.digests import image_digests
from indelible.keys.key import Key
from indelible.verify.suspects.log import QueryLog
from indelible.verify.suspects.logged import LoggedSuspect, description
from indelible.verify.suspects.protocol import Suspect
from indelible.verify.verdict import Verdict, verify

__all__ = ["Plan", "planned", "verify_logged"]


@dataclass
class _Rehearsal:
    """A stand-in that notes what it is asked and answers class 0."""

    asked: list[Tensor] = field(default_factory=list)

    def predict(self, images: Tensor) -> Tensor:
        """Note the images."""
        self.asked.append(images)
        return torch.zeros(len(images), dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Plan:
    """The different images that a verification asks, in the order in which they are asked.

    Attributes:
        images: uint8 (N, C, H, W).
        digests: The name of each.
    """

    images: Tensor
    digests: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)


def planned(test: Callable[[Suspect], Any], *, seed: int) -> Plan:
    """Return what ``test`` would ask, each different image once, shuffled.

    Args:
        test: Asks the suspect that it is given; what it asks must not depend on the answers.
        seed: Decides the order.
    """
    rehearsal = _Rehearsal()
    test(rehearsal)
    images = torch.cat(rehearsal.asked)
    first: dict[str, int] = {}
    for row, digest in enumerate(image_digests(images)):
        first.setdefault(digest, row)
    names, rows = list(first), torch.tensor(list(first.values()))
    order = torch.randperm(len(rows), generator=generator(seed, "questions"))
    return Plan(images[rows[order]], tuple(names[place] for place in order.tolist()))


def verify_logged(
    suspect: Suspect, key: Key, carriers: Any, *, log: str | Path, budget: int | None = None,
    about: Mapping[str, Any] | None = None, **options: Any,
) -> Verdict:  # fmt: skip
    """Verify with a query log: a broken run goes on when it is called again, and no answered query is repeated.

    Args:
        suspect: Who is asked.
        key: The owner's key.
        carriers: Images that marks are drawn on.
        log: The file; the verdict can be computed from it again by giving it as the suspect.
        budget: Images that may be sent in all, retries and earlier sessions included.
        about: What the log is kept for; the key's digest by default.
        options: Of :func:`indelible.verify`.

    Raises:
        BudgetError: The plan needs more than the budget; nothing was asked.
    """
    # A sequential test asks as it goes and stops early: nothing is planned, and its own order is the secret's.
    plan = None
    if options.get("test") != "sequential":
        plan = planned(lambda stand_in: verify(stand_in, key, carriers, **options), seed=order_seed(key))
    purpose = {"key": key.digest} if about is None else about
    with QueryLog(log, classes=key.classes, suspect=description(suspect), about=purpose) as kept:
        asked = LoggedSuspect(suspect, kept, classes=key.classes, budget=budget)
        if plan is not None:
            asked.ask_all(plan.images)
        return verify(asked, key, carriers, **options)


def order_seed(key: Key) -> int:
    """Return the seed of a key's order of questions: the same in every session, unknown to the suspect."""
    return int(key.digest[:15], 16)
