"""One suspect asked with one key: the samples to ask, and a count of every query."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.keys.key import FRESH, Key, WatermarkSamples
from indelible.verification.suspects import Suspect, answers

DECOYS = 20
DECOY_SAMPLES = 1000


@dataclass(kw_only=True)
class SuspectQueries:
    """What a procedure works with: one suspect, one key, its samples to ask, and a count of the queries.

    ``carriers`` may be None with keyed labels; ``decoys`` and ``decoy_samples`` None leave the numbers to the
    procedure.
    """

    suspect: Suspect
    key: Key
    samples: WatermarkSamples
    carriers: Data | None
    alpha: float
    decoys: int | None = None
    decoy_samples: int | None = None
    queries: int = field(default=0, init=False)

    def ask(self, images: Tensor, suspect: Suspect | None = None) -> Tensor:
        """Return the label (int64, (N,)) of each image, checked, and count the queries.

        The suspect is asked, or a changed copy of it that is given instead.
        """
        self.queries += len(images)
        return answers(suspect or self.suspect, images, self.key.classes)

    def hits(self, samples: WatermarkSamples) -> int:
        """Return how many of ``samples`` are hits: answered with their labels, untargeted ones with another class."""
        return int(samples.hits(self.ask(samples.images)).sum())

    def decoy_hits(self, number: int, count: int | None = None) -> tuple[int, int]:
        """Ask samples of decoy ``number``; return how many are hits, and of how many."""
        carriers, target = self.given_carriers(), self.key.target
        room = len(carriers) if target is None else int((carriers.labels != target).sum())
        asked = min(count or self.decoy_samples or DECOY_SAMPLES, room)
        return self.hits(self.key.decoy(number).samples(carriers, purpose="verify", count=asked)), asked

    def accuracy(self) -> float:
        """Return the share of clean carriers that are answered with their true class."""
        right, data = 0, self.given_carriers()
        for images, labels in data.iterate(torch.arange(len(data)), 1000, torch.device("cpu")):
            right += int((self.ask(images) == labels).sum())
        return right / len(data)

    def given_carriers(self) -> Data:
        """Return the carriers; refuse to go on where none were given."""
        if self.carriers is None:
            raise InputError("this takes the images that marks are drawn on. Give carriers.")
        return self.carriers


def asked_samples(
    key: Key, carriers: Data | None, embedded: WatermarkSamples | None, max_samples: int | None
) -> WatermarkSamples:
    """Return the key's samples that a suspect is asked; all if ``max_samples`` is None.

    They are drawn on ``carriers``, a test set. With keyed labels they are the ``embedded`` ones, of a fingerprint the
    stored ones.
    """
    if key.labels in FRESH:
        if carriers is None:
            raise InputError(
                f"a key with {key.labels} labels is verified on images that marks are drawn on. Give carriers."
            )
        return key.samples(carriers, purpose="verify", count=max_samples)
    if key.fingerprint is not None:
        whole = key.fingerprint.samples
    elif embedded is None:
        # Any other images would have other labels, and the answer would be a wrong "not shown".
        raise InputError(
            "keyed labels are asked on the very samples that were embedded. Give embedded=protected.samples, "
            "embedded=WatermarkSamples.load(FILE), or embedded=key.samples(OWNER_IMAGES, purpose='embed')."
        )
    elif torch.equal(key.label(embedded.images, embedded.true), embedded.labels):
        whole = embedded
    else:
        raise InputError(
            "the samples do not have the labels that this key gives them: they belong to another key, or some of them "
            "were left out or changed. Keyed labels belong to the whole set; give it as it was embedded."
        )
    if max_samples is None:
        return whole
    if not 0 < max_samples <= len(whole):
        what = "embedded samples" if key.fingerprint is None else "stored queries"
        raise InputError(f"max_samples must be 1..{len(whole)}, the {what} of the key, got {max_samples}.")
    return whole.subset(key.choose("queries", len(whole), max_samples))
