"""The verdict: what was asked, what came, how likely that is by chance, and what it does and does not prove."""

from dataclasses import dataclass, field
from typing import Any

import torch

from indelible.base.errors import InputError
from indelible.base.records import plain, versions
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples
from indelible.verify.statistics import bounded_binomial
from indelible.verify.suspects import Suspect, answers, as_suspect

__all__ = ["Verdict", "verify"]

_TEST = "exact binomial, null rate bounded by the worst of 20 decoy keys"
_DECOYS, _DECOY_SAMPLES = 20, 1000
# The chance that the decoys' limit is wrong is a tenth of alpha: small beside it, and it costs few queries.
_MISS_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a verification.

    Attributes:
        owned: Whether the p-value is at most ``alpha``.
        wsr: Share of the key's samples answered with their labels.
        p_value: Chance of at least that many hits from a model that never saw the key.
        alpha: Level of the decision.
        queries: Images asked in all, decoys included.
        test: Name of the test.
        hits: Key samples answered with their labels.
        trials: Key samples asked.
        decoy_rate: Share of the worst decoy key's samples answered with the key's label.
        null_rate: Upper limit of that share over all decoys, used as the chance of a hit.
        ba: Accuracy on the clean carriers, if it was asked for.
        wsr_embedded: WSR on the samples that were embedded in training, if they were given.
        key: Digest of the key.
        assumptions: What the p-value rests on.
        sentence: The verdict in words.
        versions: Versions of the packages that decided it.
    """

    owned: bool
    wsr: float
    p_value: float
    alpha: float
    queries: int
    test: str
    hits: int
    trials: int
    decoy_rate: float
    null_rate: float
    ba: float | None = None
    wsr_embedded: float | None = None
    key: str
    assumptions: tuple[str, ...]
    sentence: str
    versions: dict[str, str] = field(default_factory=lambda: dict(versions()))

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def verify(
    suspect: Any,
    key: Key,
    carriers: Any,
    *,
    alpha: float = 1e-6,
    queries: int | None = None,
    embedded: WatermarkSamples | None = None,
    accuracy: bool = True,
    normalize: Normalization | None = None,
) -> Verdict:
    """Decide whether ``suspect`` carries the watermark of ``key``.

    Args:
        suspect: A torch module, or anything with ``predict(images)``.
        key: The owner's key.
        carriers: Images that marks are drawn on, not used in embedding: a test set.
        alpha: How often an unmarked model may be called the owner's, at most.
        queries: Key samples to ask; by default all that the carriers give.
        embedded: The samples embedded in training, to report their WSR apart.
        accuracy: Also ask for the clean carriers, for BA.
        normalize: (mean, std) that a module's input is normalised by.
    """
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, but is {alpha}. Use 1e-6 for a strong claim.")
    asked = as_suspect(suspect, normalize=normalize)
    images = as_data(carriers, classes=key.classes)
    samples = key.samples(images, purpose="verify", count=queries)
    hits = int((answers(asked, samples.images, key.classes) == samples.labels).sum())
    decoys = _ask_decoys(asked, key, images)
    p_value, null_rate = bounded_binomial(hits, len(samples), decoys, alpha * _MISS_SHARE)
    count = len(samples) + sum(trials for _, trials in decoys)
    ba = wsr_embedded = None
    if accuracy:
        ba = _accuracy(asked, images, key.classes)
        count += len(images)
    if embedded is not None:
        right = answers(asked, embedded.images, key.classes) == embedded.labels
        wsr_embedded = int(right.sum()) / len(embedded)
        count += len(embedded)
    owned = p_value <= alpha
    return Verdict(
        owned=owned, wsr=hits / len(samples), p_value=p_value, alpha=alpha, queries=count, test=_TEST, hits=hits,
        trials=len(samples), decoy_rate=max(found / trials for found, trials in decoys), null_rate=null_rate, ba=ba,
        wsr_embedded=wsr_embedded, key=key.digest, assumptions=_assumptions(key),
        sentence=_sentence(owned, hits, len(samples), p_value, null_rate, key),
    )  # fmt: skip


def _ask_decoys(suspect: Suspect, key: Key, carriers: Data) -> list[tuple[int, int]]:
    """Ask samples of decoy keys; return for each how often the key's own label comes back, and of how many."""
    count = min(_DECOY_SAMPLES, int((carriers.labels != key.target).sum()))
    found = []
    for number in range(_DECOYS):
        samples = key.decoy(number).samples(carriers, purpose="verify", count=count)
        hits = int((answers(suspect, samples.images, key.classes) == samples.labels).sum())
        found.append((hits, count))
    return found


def _accuracy(suspect: Suspect, data: Data, classes: int) -> float:
    right = 0
    for images, labels in data.iterate(torch.arange(len(data)), 1000, torch.device("cpu")):
        right += int((answers(suspect, images, classes) == labels).sum())
    return right / len(data)


def _assumptions(key: Key) -> tuple[str, ...]:
    common = (
        "the key was fixed before the suspect was seen",
        f"an unmarked model answers this key's samples with its label no more often than the worst of {_DECOYS} decoys",
        "its answers to different samples are independent",
    )
    if key.scheme == "paper":
        return (*common, "the mark is the paper's public one: anybody could claim it, so it proves nothing by itself")
    if key.kind == "unrelated" and key.pool is not None:
        return (*common, "decoys are generated images: the second data set is assumed to be as foreign to the model")
    return common


def _sentence(owned: bool, hits: int, trials: int, p_value: float, null_rate: float, key: Key) -> str:
    found = (
        f"{hits} of {trials} samples of the key were answered with its label; a model that never saw the key does that "
        f"with probability at most {p_value:.1e} (chance of a hit at most {null_rate:.3f})."
    )
    if not owned:
        return f"Not shown to be derived from the owner's model: {found}"
    weight = " The paper's literal mark is public, so this carries no weight against forgery." * (key.scheme == "paper")
    return (
        f"Derived from a model that carries this key's watermark: {found} It does not show who made the key, nor when; "
        f"that takes a commitment dated before the dispute.{weight}"
    )
