"""The procedures: which questions a test asks, what it makes of the answers, and what that rests on.

| name | labels | exact null | smallest p | asks besides the key's samples |
|---|---|---|---|---|
| ``codebook`` | codebook | for any model | C^-K | nothing |
| ``binomial`` | one mark | if this key hits no more than half or the worst decoy | a tenth of alpha | 20 decoys |
| ``decoys`` | one mark | for any model | 1 / (N + 1) | N decoys |
| ``paired`` | one mark; content, noise | as ``binomial``, and McNemar's | a tenth of alpha | carriers, 20 decoys |
| ``sequential`` | any | as ``binomial``; codebook, keyed: for any model | none | 20 decoys, if they matter |
| ``keyed`` | keyed | for any model | none | nothing |
| ``references`` | stored | if others hit no more often than half or the worst reference | a tenth of alpha | nothing |

``auto`` is ``codebook`` for a codebook, ``keyed`` for keyed labels, ``paired`` for untargeted samples, ``references``
for a fingerprint and ``binomial`` for a fixed target. The statistics are pure functions in
:mod:`indelible.verify.statistics`.

An untargeted sample is a hit when it is answered wrongly, and every model is wrong now and then. What counts is how
much more often than on the same images without the mark, and with other keys' marks: ``paired`` asks both. Of the
carriers that the model gets right, it counts those that the mark turns wrong; a model that is bad at its task has few
of these and gains nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.keys.key import FRESH, SINGLE, Key, Labels
from indelible.keys.unrelated import UnrelatedMark
from indelible.verify.codebook import ANY_MODEL, codebook, codebook_sequential
from indelible.verify.inquiry import DECOYS, Finding, Inquiry
from indelible.verify.statistics import (
    FLOOR,
    EProcess,
    binomial_tail,
    bounded_binomial,
    bounded_rate,
    decoys_for,
    keyed_p_value,
    keyed_rate,
    mcnemar,
    rank_p_value,
    rareness,
)

__all__ = ["MISS_SHARE", "PROCEDURES", "Finding", "Procedure", "procedure_for"]

# The chance that the decoys' limit is wrong is a tenth of alpha: small beside it, and it costs few queries.
MISS_SHARE = 0.1
_MOST_DECOYS = 9999
_RANK_SAMPLES = 200

_NO_MORE = (
    "an unmarked model answers this key's samples with {} no more often than every other time, or than the worst of {} "
    "decoys' if that is more"
)
_LIKE_REFERENCES = (
    "an independent model answers these queries with their labels no more often than every other time, or than the "
    "worst of the {} reference models that whoever made the fingerprint trained and held back"
)
_HALF = "an unmarked model answers this key's samples with {} no more often than every other time"
_DRAWN = "the labels are those that the secret draws, unknown to whoever made the model"
_INDEPENDENT = "its answers to different samples are independent"


@dataclass(frozen=True, kw_only=True)
class Procedure:
    """One way to decide.

    Attributes:
        name: Its name on the command line.
        title: What it is, in a few words.
        labels: The kinds of labels it is for.
        run: Asks and decides.
    """

    name: str
    title: str
    labels: tuple[Labels, ...]
    run: Callable[[Inquiry], Finding]


def _ask_decoys(inquiry: Inquiry) -> list[tuple[int, int]]:
    return [inquiry.decoy_hits(number) for number in range(inquiry.decoys or DECOYS)]


def _answer(key: Key) -> str:
    return "a wrong class" if key.labels == "untargeted" else "its label"


def _no_more(key: Key, decoys: int) -> str:
    return _NO_MORE.format(_answer(key), decoys)


def _worst(decoys: list[tuple[int, int]]) -> float:
    return max(hits / trials for hits, trials in decoys)


def binomial(inquiry: Inquiry) -> Finding:
    """Exact binomial, null rate bounded by the worst decoy."""
    hits = inquiry.hits(inquiry.samples)
    decoys = _ask_decoys(inquiry)
    p_value, null_rate = bounded_binomial(hits, len(inquiry.samples), decoys, inquiry.alpha * MISS_SHARE)
    return Finding(
        hits=hits, trials=len(inquiry.samples), p_value=p_value, null_rate=null_rate, decoy_rate=_worst(decoys),
        decoys=len(decoys), assumptions=(_no_more(inquiry.key, len(decoys)), _INDEPENDENT),
    )  # fmt: skip


def rank(inquiry: Inquiry) -> Finding:
    """The key's rank among decoys that were asked as many samples as the key."""
    needed = decoys_for(inquiry.alpha)
    count = inquiry.decoys or needed
    if count < needed or count > _MOST_DECOYS:
        raise InputError(
            f"the rank test at alpha {inquiry.alpha:g} needs {needed} decoy keys, and asks {_MOST_DECOYS} at most: "
            f"choose alpha from {1 / (_MOST_DECOYS + 1):g} up, or keyed labels for a smaller one."
        )
    # As many samples for the key as for each decoy, or they would not be exchangeable.
    samples = inquiry.samples.subset(torch.arange(min(len(inquiry.samples), _RANK_SAMPLES)))
    hits = inquiry.hits(samples)
    decoys = [inquiry.decoy_hits(number, len(samples)) for number in range(count)]
    return Finding(
        hits=hits, trials=len(samples), p_value=rank_p_value(hits, [found for found, _ in decoys]),
        decoy_rate=_worst(decoys), decoys=count,
        assumptions=("the key is one of many that were drawn alike: derived, none chosen by anybody", ANY_MODEL),
    )  # fmt: skip


def paired(inquiry: Inquiry) -> Finding:
    """McNemar's test, and the share of carriers won over by the mark against that of the worst decoy's mark.

    Both must reject: the p-value is the larger of the two.
    """
    samples = inquiry.samples
    if isinstance(inquiry.key.mark(), UnrelatedMark):
        raise InputError("the paired test asks carriers with and without a mark, but unrelated samples have none.")
    plain = inquiry.plain()
    before = samples.hits(inquiry.ask(plain))
    after = samples.hits(inquiry.ask(samples.images))
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    free = int((~before).sum())
    decoys = []
    for number in range(inquiry.decoys or DECOYS):
        mark = inquiry.key.decoy(number).mark()
        # All carriers are asked, those that hit anyway too, and if all do: what is asked must not depend on answers.
        won = samples.hits(inquiry.ask(mark.apply(plain)))  # type: ignore[union-attr]  # no unrelated mark
        decoys.append((int((won & ~before).sum()), free))
    miss, bounded, null_rate = inquiry.alpha * MISS_SHARE, 1.0, 1.0
    if free > 0:  # else all carriers are hits as they are, and nothing can be shown
        null_rate = bounded_rate(decoys, miss)
        bounded = min(1.0, binomial_tail(gained, free, null_rate) + miss)
    sign = mcnemar(gained, lost)
    return Finding(
        hits=int(after.sum()), trials=len(after), p_value=max(bounded, sign), null_rate=null_rate,
        decoy_rate=_worst(decoys) if free else None, decoys=len(decoys),
        counts={"gained": gained, "lost": lost, "free": free, "mcnemar_p": sign},
        assumptions=(
            (
                "an unmarked model is not won over by this mark every other time, nor more often than by the worst of "
                f"{len(decoys)} decoys', or it reacts to no mark at all"
            ),
            _INDEPENDENT,
        ),
    )  # fmt: skip


def keyed(inquiry: Inquiry) -> Finding:
    """Exact binomial over the samples that were not answered with their true class."""
    samples = inquiry.samples
    found = inquiry.ask(samples.images)
    hits = int((found == samples.labels).sum())
    open_ = len(samples) if samples.true is None else int((found != samples.true).sum())
    with_truth = samples.true is not None
    p_value = keyed_p_value(hits, open_, inquiry.key.classes, with_truth=with_truth)
    return Finding(
        hits=hits, trials=len(samples), p_value=p_value,
        null_rate=keyed_rate(inquiry.key.classes, with_truth=with_truth),
        counts={"open": open_, "rareness": rareness(p_value)},
        assumptions=(_DRAWN, ANY_MODEL),
    )  # fmt: skip


def references(inquiry: Inquiry) -> Finding:
    """Exact binomial, null rate bounded by the worst reference model of a fingerprint."""
    fingerprint = inquiry.key.fingerprint
    if fingerprint is None:
        raise InputError("reference models belong to a fingerprint, which this key is not.")
    hits, nulls = inquiry.hits(inquiry.samples), fingerprint.nulls
    p_value, null_rate = bounded_binomial(hits, len(inquiry.samples), nulls, inquiry.alpha * MISS_SHARE)
    return Finding(
        hits=hits, trials=len(inquiry.samples), p_value=p_value, null_rate=null_rate,
        counts={"references": len(nulls), "reference_rate": _worst(nulls)},
        assumptions=(
            _LIKE_REFERENCES.format(len(nulls)), _INDEPENDENT,
            "whoever made the fingerprint is honest: queries, labels and the reference models' hits are theirs",
        ),
    )  # fmt: skip


def sequential(inquiry: Inquiry) -> Finding:
    """Ask one sample (a codebook: one mark) at a time; stop once the level is reached, or cannot be reached any more.

    A fixed target's null rate is at least the floor, so the level must be reached there before decoys can matter: they
    are asked then, and once. A suspect that does not know the key costs no decoys; without them nothing bounds the null
    rate from above, and the p-value is 1.
    """
    if inquiry.key.labels == "codebook":
        return codebook_sequential(inquiry)
    samples, key, keyed = inquiry.samples, inquiry.key, inquiry.key.labels == "keyed"
    rate = keyed_rate(key.classes, with_truth=samples.true is not None) if keyed else FLOOR
    miss = 0.0 if keyed else inquiry.alpha * MISS_SHARE
    decoys: list[tuple[int, int]] = []
    trials: list[bool] = []
    process, hits, asked = EProcess(rate), 0, 0
    # The order is the secret's: carriers stand in the order of their set, which may be sorted by class.
    for row in key.choose("order", len(samples), len(samples)).tolist():
        one = samples.subset(torch.tensor([row]))
        answer = inquiry.ask(one.images)
        asked += 1
        hit = bool(one.hits(answer))
        hits += hit
        # Beside a keyed label, an answer that is the true class could not hit: no trial.
        if not (keyed and one.true is not None and bool(answer == one.true)):
            trials.append(hit)
            process.update(hit)
        if process.p_value + miss <= inquiry.alpha and not keyed and not decoys:
            decoys = _ask_decoys(inquiry)
            rate = bounded_rate(decoys, miss)
            process = EProcess.of(rate, trials)
        if process.p_value + miss <= inquiry.alpha or process.reachable(len(samples) - asked) + miss > inquiry.alpha:
            break
    rests = (_DRAWN, ANY_MODEL)
    if not keyed:
        common = _no_more(key, len(decoys)) if decoys else _HALF.format(_answer(key))
        rests = (common, "whatever it answered before does not make its next hit likelier")
    unbounded = not keyed and not decoys
    return Finding(
        hits=hits, trials=asked, p_value=1.0 if unbounded else min(1.0, process.p_value + miss),
        e_value=process.e_value, null_rate=rate, decoy_rate=_worst(decoys) if decoys else None, decoys=len(decoys),
        counts={"open": process.trials}, assumptions=rests,
    )  # fmt: skip


_OWN: Mapping[Labels, str] = {
    "codebook": "codebook",
    "fixed": "binomial",
    "keyed": "keyed",
    "untargeted": "paired",
    "stored": "references",
}

PROCEDURES: Mapping[str, Procedure] = {
    one.name: one
    for one in (
        Procedure(
            name="codebook", title="exact test over the draw of a class for every mark", labels=("codebook",),
            run=codebook,
        ),
        Procedure(
            name="binomial", title="exact binomial, null rate bounded by the worst of the decoy keys",
            labels=SINGLE, run=binomial,
        ),
        Procedure(name="decoys", title="exact rank of the key among decoy keys", labels=SINGLE, run=rank),
        Procedure(
            name="paired", title="McNemar's exact test with and without the mark, and against the worst decoy's mark",
            labels=SINGLE, run=paired,
        ),
        Procedure(
            name="sequential", title="anytime-valid e-process, one query at a time", labels=(*FRESH, "keyed"),
            run=sequential,
        ),
        Procedure(name="keyed", title="exact binomial over the draw of the keyed labels", labels=("keyed",), run=keyed),
        Procedure(
            name="references", title="exact binomial, null rate bounded by the worst reference model held back",
            labels=("stored",), run=references,
        ),
    )
}  # fmt: skip


def procedure_for(name: str, key: Key) -> Procedure:
    """Return the procedure called ``name``; ``"auto"`` is the key's own. One that is not for its labels is refused."""
    if name == "auto":
        name = _OWN[key.labels]
    if name not in PROCEDURES:
        raise UnknownNameError("test", name, ["auto", *PROCEDURES])
    found = PROCEDURES[name]
    if key.labels not in found.labels:
        fitting = [one.name for one in PROCEDURES.values() if key.labels in one.labels]
        raise InputError(
            f"the test {name!r} is not for {key.labels} labels, which this key has. Use one of {', '.join(fitting)}."
        )
    return found
