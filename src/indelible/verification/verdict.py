"""The verdict: what was asked and answered, how likely that is by chance, and what it does and does not prove."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from indelible.base.checks import check_is_key
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.records import JsonFields, versions
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.data.images import Data
from indelible.keys.key import FRESH, Key, WatermarkSamples
from indelible.verification.findings import Finding
from indelible.verification.procedures import procedure_for
from indelible.verification.statistics.exact_tests import holm
from indelible.verification.suspect_queries import SuspectQueries, asked_samples
from indelible.verification.suspects import as_suspect

_ANSWERS = {
    "fixed": "its label",
    "keyed": "their labels",
    "untargeted": "a class that is not their true one",
    "stored": "their labels",
}
_NOTE = " (chance of a hit at most {0.null_rate:.3f})"
_NOTES = {
    "decoys": " (its rank among {0.decoys} decoy keys)",
    "keyed": " (chance of a hit at most {0.null_rate:.3f}; rareness {0.counts[rareness]:.0f} bits)",
    "references": (
        " (chance of a hit taken to be at most {0.null_rate:.3f}; reference models: {0.counts[references]})"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Verdict(JsonFields, Finding):
    """The outcome of a verification: a finding, and what follows from it.

    Attributes:
        owned: Whether the p-value (corrected, if several verdicts were) is at most ``alpha``.
        wsr: Share of hits among the key's samples.
        p_value: Chance of a result like this from a model that never saw the key, at most.
        alpha: Level of the decision.
        queries: Images asked in all, decoys included.
        test: What the test is.
        procedure: Its name, such as ``"codebook"`` (:mod:`indelible.verification.procedures`).
        labels: Labels of the key: ``"codebook"``, ``"fixed"``, ``"keyed"``, ``"untargeted"`` or ``"stored"``.
        hits: Key samples answered with their labels; untargeted ones, with any class but their true one.
        trials: Key samples asked.
        e_value: Capital of the sequential test at its end.
        decoys: Decoy keys asked.
        decoy_rate: Share of hits among the worst decoy key's samples, if decoys were asked.
        null_rate: Chance of a hit for a model that never saw the key, as the test used it; None for the rank test.
        counts: What else the test counted. Of a codebook: ``marks`` asked, ``held``, how many of them have their secret
            class on top, and ``carriers`` of each. With keyed labels also the rareness of the match, in bits.
        ba: Accuracy on the clean carriers, if it was asked for.
        wsr_embedded: WSR on the samples that were embedded in training, if they were given.
        p_corrected: p-value after Holm's correction, if several verdicts were corrected together.
        family: How many verdicts were.
        binding: Who could have chosen what the suspect was asked. ``"key"``: nobody, the secret decides all of it.
            ``"carriers"``: nobody, the classes of the codebook were drawn for these very images. ``"auditor"``: whoever
            brought the images; a claim counts if that was not the claimant. ``"none"``: the maker of the key, so that a
            match has no weight against forgery.
        table: Of a codebook, one row for each mark asked: how many carriers of another class were answered with each
            class. For the owner: it shows which mark has which class.
        drawn: Of a codebook, the class of each of these marks.
        key: Digest of the key.
        assumptions: What the p-value assumes.
        sentence: The verdict in words: what it shows, and what it does not.
        versions: Versions of the packages that decided it.
    """

    owned: bool
    wsr: float
    alpha: float
    queries: int
    test: str
    procedure: str = "binomial"
    labels: str = "fixed"
    ba: float | None = None
    wsr_embedded: float | None = None
    p_corrected: float | None = None
    family: int = 1
    binding: str = "key"
    key: str
    sentence: str
    versions: dict[str, str] = field(default_factory=lambda: dict(versions()))

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild a verdict from :meth:`to_json`; fields with a default may be missing."""
        if not isinstance(value, dict):
            raise DamagedFileError("expected a verdict, a JSON object. Verify again.")
        held = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        held |= {name: tuple(held[name]) for name in ("assumptions", "drawn") if name in held}
        held["table"] = tuple(tuple(row) for row in held.get("table", ()))
        try:
            return cls(**held)
        except TypeError as error:
            raise DamagedFileError(f"this is not a verdict ({error}). Verify again.") from error


def verify(
    suspect: Any,
    key: Key,
    carriers: Any = None,
    *,
    procedure: str = "auto",
    alpha: float = 1e-6,
    max_samples: int | None = None,
    decoys: int | None = None,
    decoy_samples: int | None = None,
    embedded: WatermarkSamples | None = None,
    accuracy: bool = True,
    normalize: Normalization | None = None,
) -> Verdict:
    """Decide whether ``suspect`` carries the watermark of ``key``.

    Args:
        suspect: A torch module, or anything with ``predict(images)``.
        key: The owner's key.
        carriers: Images that marks are drawn on, not used in embedding: a test set. With keyed labels and a
            fingerprint they only give BA.
        procedure: ``"auto"``, the key's own, or ``"codebook"``, ``"relearning"``, ``"binomial"``, ``"decoys"``,
            ``"paired"``, ``"sequential"``, ``"keyed"`` or ``"references"`` (:mod:`indelible.verification.procedures`).
        alpha: How often an unmarked model may be called the owner's, at most.
        max_samples: Key samples to ask, at most; by default all there are, of a codebook 200 of each mark.
        decoys: Decoy keys to ask; by default 20, and as many as alpha takes in the test ``"decoys"``.
        decoy_samples: Samples of each decoy key to ask, at most; by default 1,000. ``"decoys"`` and ``"paired"`` ask as
            many as of the key.
        embedded: The samples embedded in training; a codebook has none. Keyed labels: what is asked, needed. Else their
            WSR is reported apart.
        accuracy: Also ask for the clean carriers, for BA.
        normalize: (mean, std) that a module's input is normalised by.
    """
    check_is_key(key, Key)
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, got {alpha}. Use 1e-6 for a strong claim.")
    for name, number in (("decoys", decoys), ("decoy_samples", decoy_samples)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, got {number}.")
    chosen = procedure_for(procedure, key)
    images = None if carriers is None else as_data(carriers, classes=key.classes)
    asked = SuspectQueries(
        suspect=as_suspect(suspect, normalize=normalize), key=key, carriers=images, alpha=alpha, decoys=decoys,
        decoy_samples=decoy_samples, samples=asked_samples(key, images, embedded, max_samples),
    )  # fmt: skip
    found = chosen.run(asked)
    ba = asked.accuracy() if accuracy and images is not None else None
    own = None if embedded is None or key.labels not in FRESH else asked.hits(embedded) / len(embedded)
    owned, (binding, assumed, free) = found.p_value <= alpha, _origin(key, images)
    assumptions = ("the key was fixed before the suspect was seen", *found.assumptions, *([assumed] if assumed else []))
    return Verdict(
        **{**vars(found), "assumptions": assumptions}, owned=owned, wsr=found.hits / found.trials, alpha=alpha,
        queries=asked.queries, test=chosen.title, procedure=chosen.name, labels=key.labels, ba=ba,
        wsr_embedded=own, binding=binding, key=key.digest,
        sentence=_sentence(owned, found, chosen.name, key, free),
    )  # fmt: skip


def corrected(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts of one family - several keys, or several suspects - with Holm's correction.

    The chance of even one false claim among them is at most alpha; all must have been made at the same one.
    """
    if len({verdict.alpha for verdict in verdicts}) > 1:
        raise InputError("verdicts of several levels cannot be corrected together. Verify all at one alpha.")
    made = []
    for verdict, value in zip(verdicts, holm([verdict.p_value for verdict in verdicts]), strict=True):
        lost = verdict.owned and value > verdict.alpha
        said = "Not shown after correction for several verdicts. By itself: " if lost else ""
        sentence = f"{said}{verdict.sentence} Corrected for {len(verdicts)} verdicts (Holm), p = {value:.1e}."
        owned = value <= verdict.alpha
        made.append(replace(verdict, p_corrected=value, family=len(verdicts), owned=owned, sentence=sentence))
    return tuple(made)


def _origin(key: Key, carriers: Data | None) -> tuple[str, str, str]:
    """Return who could have chosen what was asked, what that assumes, and what a forger could choose; or empty text."""
    if key.fingerprint is not None:
        free = (
            "queries and labels of a fingerprint are found by optimisation, and anybody can find such ones that many "
            "independent models answer alike: it is forgeable"
        )
        return "none", "", free
    if key.scheme == "paper":
        public = "the mark is the paper's public one"
        return "none", f"{public}: anybody could claim it, so it proves nothing by itself", public
    if key.kind == "unrelated" and key.pool is not None and key.labels == "fixed":
        free = "whoever made the key chose the second data set, and any model may know its images as the target class"
        return "none", "decoys are generated images: the second data set is assumed to be as foreign to the model", free
    if key.labels != "codebook" or key.kind == "unrelated":
        return "key", "", ""
    if carriers is not None and key.is_bound_to(carriers):
        return "carriers", "", ""
    return "auditor", "the carriers were not chosen by whoever made the key: the auditor brought them", ""


def _sentence(owned: bool, found: Finding, test: str, key: Key, free: str) -> str:
    what, stranger = "watermark", "A model that never saw the key"
    if key.fingerprint is not None:
        what, stranger = "fingerprint", "An independent model that is like the reference models"
    chance = f"{stranger} does as well with probability at most {found.p_value:.1g}"
    if found.p_value >= 0.5:
        chance = f"{stranger} may do as well more than 50 % of the time"
    if key.labels == "codebook":
        marks, copies = f"{found.counts['marks']:.0f}", ""
        if test == "relearning" and found.counts["marks"] < (key.marks or 0):
            marks, copies = f"{marks} other", "after copies of the suspect were taught some marks, "
        counted = (
            f"{copies}{found.counts['held']:.0f} of {marks} marks are answered with their secret class "
            f"({found.hits} of {found.trials} answers). {chance}."
        )
    else:
        counted = f"{found.hits} of {found.trials} samples of the key were answered with {_ANSWERS[key.labels]}. "
        note = _NOTES.get(test, "" if found.null_rate is None else _NOTE)
        counted += f"{chance}{note.format(found)}."
    if not owned:
        return f"Not shown to be derived from the owner's model: {counted} That does not prove that it is independent."
    weight = f" It carries no weight against forgery: {free}." if free else ""
    return (
        f"Derived from a model that carries this key's {what}: {counted} It does not show who made the key, nor "
        f"when; that takes a commitment dated before the dispute.{weight}"
    )
