"""An inquiry: one suspect, one key, the samples to ask, a count of every query - and what was found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.keys.key import FRESH, Key, WatermarkSamples
from indelible.verify.suspects import Suspect, answers

__all__ = ["DECOYS", "Finding", "Inquiry", "asked_samples"]

DECOYS = 20
_DECOY_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a procedure found.

    Attributes:
        hits: Key samples answered with their labels; untargeted ones, with another class.
        trials: Key samples asked.
        p_value: Chance of a result like this from a model that never saw the key, at most.
        assumptions: What the p-value rests on, beyond that the key was fixed before.
        e_value: The capital of a sequential test at its end.
        null_rate: Chance of a hit under the null that was used.
        decoy_rate: Share of hits among the worst decoy's samples.
        decoys: Decoy keys asked.
        counts: What else was counted.
        table: Of a codebook, N_i(c): for every mark asked, how many carriers of another class were answered c.
        drawn: Of a codebook, the classes of the marks asked.
    """

    hits: int
    trials: int
    p_value: float
    assumptions: tuple[str, ...]
    e_value: float | None = None
    null_rate: float | None = None
    decoy_rate: float | None = None
    decoys: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    table: tuple[tuple[int, ...], ...] = ()
    drawn: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Inquiry:
    """What a procedure works with.

    Attributes:
        suspect: What is asked.
        key: The owner's key.
        samples: The key's samples to ask.
        carriers: The images that marks are drawn on; None with keyed labels whose samples were given.
        alpha: Level of the decision.
        decoys: Decoy keys to ask; None for the procedure's own number.
        decoy_samples: Samples of each to ask, at most; None for 1,000.
        queries: Images asked so far.
    """

    suspect: Suspect
    key: Key
    samples: WatermarkSamples
    carriers: Data | None
    alpha: float
    decoys: int | None = None
    decoy_samples: int | None = None
    queries: int = field(default=0, init=False)

    def ask(self, images: Tensor) -> Tensor:
        """Return the suspect's label (int64, (N,)) of each image, checked, and count the queries."""
        self.queries += len(images)
        return answers(self.suspect, images, self.key.classes)

    def hits(self, samples: WatermarkSamples) -> int:
        """Return how many of ``samples`` are hits: answered with their labels, untargeted ones with another class."""
        return int(samples.hits(self.ask(samples.images)).sum())

    def plain(self) -> Tensor:
        """Return the carriers of the samples without the mark: uint8 (n, C, H, W)."""
        return self._carriers().gather(self.samples.carriers).images.cpu()

    def decoy_hits(self, number: int, count: int | None = None) -> tuple[int, int]:
        """Ask samples of decoy ``number``; return how many are hits, and of how many."""
        carriers, target = self._carriers(), self.key.target
        room = len(carriers) if target is None else int((carriers.labels != target).sum())
        asked = min(count or self.decoy_samples or _DECOY_SAMPLES, room)
        return self.hits(self.key.decoy(number).samples(carriers, purpose="verify", count=asked)), asked

    def accuracy(self) -> float:
        """Return the share of clean carriers that are answered with their true class."""
        right, data = 0, self._carriers()
        for images, labels in data.iterate(torch.arange(len(data)), 1000, torch.device("cpu")):
            right += int((self.ask(images) == labels).sum())
        return right / len(data)

    def _carriers(self) -> Data:
        if self.carriers is None:
            raise InputError("this takes the images that marks are drawn on. Give carriers.")
        return self.carriers


def asked_samples(
    key: Key, carriers: Data | None, embedded: WatermarkSamples | None, queries: int | None
) -> WatermarkSamples:
    """Return the key's samples that a suspect is asked.

    Args:
        key: The owner's key.
        carriers: Fixed labels, or none: images not used in embedding, a test set. Keyed labels: the owner's images that
            were used in embedding, unless ``embedded`` is given.
        embedded: The samples that were embedded; with keyed labels they are what is asked. A fingerprint holds its own.
        queries: How many to ask; None for all.
    """
    if key.labels in FRESH:
        if carriers is None:
            raise InputError(
                f"a key with {key.labels} labels is verified on images that marks are drawn on. Give carriers."
            )
        return key.samples(carriers, purpose="verify", count=queries)
    whole = embedded if key.fingerprint is None else key.fingerprint.samples
    if whole is None:
        if carriers is None:
            raise InputError("give the embedded samples (embedded=...), or the owner's images as carriers.")
        whole = key.samples(carriers, purpose="embed")
    elif key.fingerprint is None and not torch.equal(key.label(whole.images, whole.true), whole.labels):
        raise InputError(
            "the samples do not have the labels that this key gives them: they belong to another key, or some of them "
            "were left out or changed. Keyed labels belong to the whole set; give it as it was embedded."
        )
    if queries is None:
        return whole
    if not 0 < queries <= len(whole):
        what = "embedded samples" if key.fingerprint is None else "stored queries"
        raise InputError(f"{queries} queries are wanted, but the key has {len(whole)} {what}.")
    return whole.subset(key.choose("queries", len(whole), queries))
