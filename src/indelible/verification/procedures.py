"""The procedures: which questions a test asks, what it makes of the answers, and what it assumes.

| name | labels | exact null | smallest p | asks besides the key's samples |
|---|---|---|---|---|
| ``codebook`` | codebook | for any model | C^-K | nothing |
| ``relearning`` | codebook | for any model | 3 C^-K | nothing; it needs the suspect's weights |
| ``binomial`` | one mark | if this key hits no more than half or the worst decoy | a tenth of alpha | 20 decoys |
| ``decoys`` | one mark | for any model | 1 / (N + 1) | N decoys |
| ``paired`` | one mark; content, noise | as ``binomial``, and McNemar's | a tenth of alpha | carriers, 20 decoys |
| ``sequential`` | any | as ``binomial``; codebook, keyed: for any model | none | 20 decoys, if they matter |
| ``keyed`` | keyed | for any model | none | nothing |
| ``references`` | stored | if others hit at most half the time, or as the worst one | a tenth of alpha | nothing |

``auto`` is ``codebook`` for a codebook, ``keyed`` for keyed labels, ``paired`` for untargeted samples, ``references``
for a fingerprint and ``binomial`` for a fixed target. The statistics are pure functions in
:mod:`indelible.verification.statistics`.

An untargeted sample is a hit when it is answered wrongly, and every model is wrong now and then. What counts is how
much more often than on the same images without the mark, and with other keys' marks: ``paired`` asks both. Of the
carriers that the model gets right, it counts those that the mark turns wrong; a model that is bad at its task has few
of these and gains nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import Data
from indelible.keys.key import FRESH, SINGLE, Key, Labels, WatermarkSamples
from indelible.verification.relearning import Teacher, lessons, relearnt_counts
from indelible.verification.statistics.codebook import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    held_marks,
    sequential_factor,
    smallest_p_value,
)
from indelible.verification.statistics.exact_tests import (
    FLOOR,
    bounded_binomial,
    bounded_rate,
    decoys_for,
    fisher_p_value,
    keyed_p_value,
    keyed_rate,
    paired_test,
    rank_p_value,
    rareness,
)
from indelible.verification.statistics.sequential import EProcess
from indelible.verification.suspect_queries import DECOYS, Finding, SuspectQueries
from indelible.verification.suspects import ModuleSuspect

# The chance that the decoys' limit is wrong is a tenth of alpha: small beside it, and it costs few queries.
MISS_SHARE = 0.1
_MOST_DECOYS = 9999
_RANK_SAMPLES = 200

_HALF = "an unmarked model answers this key's samples with {} at most 50 % of the time"
_NO_MORE = _HALF + ", or at most as often as the worst of {} decoys' if that is more"
_LIKE_REFERENCES = (
    "an independent model answers these queries with their labels at most 50 % of the time, or at most as often as the "
    "worst of the {} reference models that whoever made the fingerprint trained and held back"
)
_ANY_MODEL = "nothing is assumed of the model: its answers may favour a class and depend on each other"
_CLASSES = "the classes of the marks are those that the secret draws, unknown to whoever made the model"
_DRAWN = "the labels are those that the secret draws, unknown to whoever made the model"
_INDEPENDENT = "its answers to different samples are independent"


@dataclass(frozen=True, kw_only=True)
class Procedure:
    """One way to decide: its name on the command line, what it is, the kinds of labels that it is for."""

    name: str
    title: str
    labels: tuple[Labels, ...]
    run: Callable[[SuspectQueries], Finding]


PROCEDURES: dict[str, Procedure] = {}
_Run = Callable[[SuspectQueries], Finding]


def _procedure(name: str, title: str, labels: tuple[Labels, ...]) -> Callable[[_Run], _Run]:
    """Register a function as the procedure ``name``."""

    def add(run: _Run) -> _Run:
        PROCEDURES[name] = Procedure(name=name, title=title, labels=labels, run=run)
        return run

    return add


def _ask_decoys(queries: SuspectQueries) -> list[tuple[int, int]]:
    return [queries.decoy_hits(number) for number in range(queries.decoys or DECOYS)]


def _answer(key: Key) -> str:
    return "a wrong class" if key.labels == "untargeted" else "its label"


def _worst(decoys: list[tuple[int, int]]) -> float:
    return max(hits / trials for hits, trials in decoys)


@_procedure("codebook", "exact test over the draw of a class for every mark", ("codebook",))
def codebook(queries: SuspectQueries) -> Finding:
    """Exact test of a codebook: how well the answers fit the classes that the secret drew for the marks.

    Carriers whose true class is the mark's are asked as well: leaving them out would show a suspect which class a mark
    has.
    """
    drawn, samples = _drawn(queries), queries.samples
    counts = _counted(queries, queries.ask(samples.images), len(drawn))
    return codebook_finding(counts, drawn, trials=int(samples.counted.sum()), carriers=len(samples) // len(drawn))


def codebook_finding(
    counts: Integers, drawn: Integers, *, trials: int, carriers: int, e_value: float | None = None
) -> Finding:
    """Return the finding for N_i(c) of the marks that were asked, each on so many carriers."""
    scores = codebook_scores(counts)
    p_value = codebook_p_value(scores, drawn) if e_value is None else min(1.0, 1.0 / max(e_value, 1e-300))
    return Finding(
        hits=int(counts[np.arange(len(drawn)), drawn].sum()), trials=trials, p_value=p_value, e_value=e_value,
        counts={"marks": len(drawn), "held": held_marks(scores, drawn), "carriers": carriers},
        assumptions=(_CLASSES, _ANY_MODEL), table=tuple(tuple(row) for row in counts.tolist()),
        drawn=tuple(drawn.tolist()),
    )  # fmt: skip


def _drawn(queries: SuspectQueries) -> Integers:
    """Return the classes of the marks; refuse a level that so few marks cannot reach."""
    drawn: Integers = queries.key.codebook().classes.numpy()
    _check_reachable(queries, smallest_p_value(queries.key.classes, len(drawn)))
    return drawn


def _check_reachable(queries: SuspectQueries, least: float) -> None:
    """Refuse a level below the smallest p-value that a test can give."""
    if least > queries.alpha:
        raise InputError(
            f"{queries.key.marks} marks over {queries.key.classes} classes can give p = {least:.1g} at the least, "
            f"which is above alpha = {queries.alpha:g}. Verify at a larger alpha, or make a key with more marks."
        )


def _counted(queries: SuspectQueries, answers: Tensor, marks: int) -> Integers:
    """Return N_i(c) for answers to the samples, mark by mark."""
    rows, true = answers.reshape(marks, -1).numpy(), queries.samples.true
    return answer_counts(rows, None if true is None else true[: rows.shape[1]].numpy(), queries.key.classes)


@_procedure("relearning", "exact tests on marks that taught copies of the suspect were not told", ("codebook",))
def relearning(queries: SuspectQueries) -> Finding:
    """Ask for all marks; if that does not show it, teach copies some marks and ask them for others.

    See :mod:`indelible.verification.relearning`. Its p-value counts all tests, also those that were not needed.
    """
    suspect, book, drawn = queries.suspect, queries.key.codebook(), queries.key.codebook().classes.numpy()
    if not isinstance(suspect, ModuleSuspect):
        raise InputError(
            "the test 'relearning' teaches a copy of the suspect, so it needs a torch module or a file of weights, got "
            f"{type(suspect).__name__}. Use the test 'codebook', which needs answers only."
        )
    samples, left = _apart(queries, len(book))
    parts = Teacher(suspect.model, book, left, suspect.normalize).parts
    tests = 1 + len(parts)
    _check_reachable(queries, tests * smallest_p_value(queries.key.classes, len(book)))

    def ask(model: nn.Module, images: Tensor) -> Tensor:
        return queries.ask(images, replace(suspect, model=model))

    each = len(samples) // len(book)
    rows, true = ask(suspect.model, samples.images).reshape(len(book), -1).numpy(), samples.true
    counts = answer_counts(rows, None if true is None else true.reshape(rows.shape).numpy(), queries.key.classes)
    best = codebook_finding(counts, drawn, trials=int(samples.counted.sum()), carriers=each)
    for teach in parts.values() if tests * best.p_value > queries.alpha else ():
        tables = relearnt_counts(teach, len(book), samples, queries.key.classes, ask)
        first = len(book) - sum(map(len, tables))
        values = [
            codebook_p_value(codebook_scores(table), drawn[list(asked)])
            for table, (_, asked) in zip(tables, lessons(len(book)), strict=True)
        ]
        trials = int(samples.subset(torch.arange(first * each, len(samples))).counted.sum())
        new = codebook_finding(np.concatenate(tables), drawn[first:], trials=trials, carriers=each)
        best = min(best, replace(new, p_value=fisher_p_value(values)), key=lambda one: one.p_value)
    return replace(best, p_value=min(1.0, tests * best.p_value))


def _apart(queries: SuspectQueries, marks: int) -> tuple[WatermarkSamples, Data]:
    """Return samples on at most half of the carriers, as many of every mark, and the other carriers."""
    samples, carriers = queries.samples, queries.given_carriers()
    each = min(len(samples) // marks, len(carriers) // 2)
    if each < 1:
        raise InputError("the test 'relearning' needs 2 carriers or more: some to teach with, others to ask on.")
    kept = samples.subset(torch.arange(len(samples)).reshape(marks, -1)[:, :each].flatten())
    free = torch.ones(len(carriers), dtype=torch.bool)
    if not queries.key.codebook().marks[0].own_images:
        free[kept.carriers] = False
    return kept, carriers.subset(free.nonzero().flatten())


def _codebook_sequential(queries: SuspectQueries) -> Finding:
    """Ask mark by mark; stop after the mark at which the level is reached, or cannot be reached any more."""
    drawn, samples, wanted = _drawn(queries), queries.samples, 1.0 / queries.alpha
    blocks = torch.arange(len(samples)).reshape(len(drawn), -1)
    counts, capital = np.empty((0, queries.key.classes), dtype=np.int64), 1.0
    order = queries.key.choose("order", len(drawn), len(drawn)).tolist()
    for mark in order:
        new = _counted(queries, queries.ask(samples.images[blocks[mark]]), 1)
        capital *= sequential_factor(new[0], counts, int(drawn[mark]))
        counts = np.concatenate([counts, new])
        most = capital * float(queries.key.classes) ** (len(order) - len(counts))
        if capital >= wanted or most < wanted:
            break
    asked = order[: len(counts)]
    trials = int(samples.counted[blocks[asked].flatten()].sum())
    return codebook_finding(counts, drawn[asked], trials=trials, carriers=blocks.shape[1], e_value=capital)


@_procedure("binomial", "exact binomial, null rate bounded by the worst of the decoy keys", SINGLE)
def binomial(queries: SuspectQueries) -> Finding:
    """Exact binomial, null rate bounded by the worst decoy."""
    hits = queries.hits(queries.samples)
    decoys = _ask_decoys(queries)
    p_value, null_rate = bounded_binomial(hits, len(queries.samples), decoys, queries.alpha * MISS_SHARE)
    return Finding(
        hits=hits, trials=len(queries.samples), p_value=p_value, null_rate=null_rate, decoy_rate=_worst(decoys),
        decoys=len(decoys), assumptions=(_NO_MORE.format(_answer(queries.key), len(decoys)), _INDEPENDENT),
    )  # fmt: skip


@_procedure("decoys", "exact rank of the key among decoy keys", SINGLE)
def rank(queries: SuspectQueries) -> Finding:
    """The key's rank among decoys that were asked as many samples as the key."""
    needed = decoys_for(queries.alpha)
    count = queries.decoys or needed
    if count < needed or count > _MOST_DECOYS:
        raise InputError(
            f"the rank test at alpha {queries.alpha:g} needs {needed} decoy keys, and asks {_MOST_DECOYS} at most: "
            f"choose alpha from {1 / (_MOST_DECOYS + 1):g} up, or keyed labels for a smaller one."
        )
    # As many samples for the key as for each decoy, or they would not be exchangeable.
    samples = queries.samples.subset(torch.arange(min(len(queries.samples), _RANK_SAMPLES)))
    hits = queries.hits(samples)
    decoys = [queries.decoy_hits(number, len(samples)) for number in range(count)]
    return Finding(
        hits=hits, trials=len(samples), p_value=rank_p_value(hits, [found for found, _ in decoys]),
        decoy_rate=_worst(decoys), decoys=count,
        assumptions=("the key is one of many that were drawn alike: derived, none chosen by anybody", _ANY_MODEL),
    )  # fmt: skip


@_procedure("paired", "McNemar's exact test with and without the mark, and against the worst decoy's mark", SINGLE)
def paired(queries: SuspectQueries) -> Finding:
    """McNemar's test, and the share of carriers won over by the mark against that of the worst decoy's mark.

    Both must reject: the p-value is the larger of the two.
    """
    samples = queries.samples
    if queries.key.mark().own_images:
        raise InputError("the paired test asks carriers with and without a mark, but unrelated samples have none.")
    plain = queries.plain()
    before = samples.hits(queries.ask(plain))
    after = samples.hits(queries.ask(samples.images))
    decoys = []
    for number in range(queries.decoys or DECOYS):
        mark = queries.key.decoy(number).mark()
        # All carriers are asked, those that hit anyway too, and if all do: what is asked must not depend on answers.
        decoys.append(samples.hits(queries.ask(mark.apply(plain))))
    found = paired_test(before, after, decoys, queries.alpha * MISS_SHARE)
    return Finding(
        hits=found.hits, trials=found.trials, p_value=found.p_value, null_rate=found.null_rate,
        decoy_rate=found.decoy_rate, decoys=len(decoys),
        counts={"gained": found.gained, "lost": found.lost, "free": found.free, "mcnemar_p": found.mcnemar_p},
        assumptions=(
            (
                "this mark wins over at most 50 % of the answers of an unmarked model, or at most as many as the worst "
                f"of {len(decoys)} decoys', or it reacts to no mark at all"
            ),
            _INDEPENDENT,
        ),
    )  # fmt: skip


@_procedure("sequential", "anytime-valid e-process, one query at a time", (*FRESH, "keyed"))
def sequential(queries: SuspectQueries) -> Finding:
    """Ask one sample (a codebook: one mark) at a time; stop once the level is reached, or cannot be reached any more.

    A fixed target's null rate is at least the floor, so the level must be reached there before decoys can matter: they
    are asked then, and once. A suspect that does not know the key costs no decoys; without them nothing bounds the null
    rate from above, and the p-value is 1.
    """
    if queries.key.labels == "codebook":
        return _codebook_sequential(queries)
    samples, key, keyed = queries.samples, queries.key, queries.key.labels == "keyed"
    rate = keyed_rate(key.classes, with_truth=samples.true is not None) if keyed else FLOOR
    miss = 0.0 if keyed else queries.alpha * MISS_SHARE
    decoys: list[tuple[int, int]] = []
    trials: list[bool] = []
    process, hits, asked = EProcess(rate), 0, 0
    # The order is the secret's: carriers stand in the order of their set, which may be sorted by class.
    for row in key.choose("order", len(samples), len(samples)).tolist():
        one = samples.subset(torch.tensor([row]))
        answer = queries.ask(one.images)
        asked += 1
        hit = bool(one.hits(answer))
        hits += hit
        # Beside a keyed label, an answer that is the true class could not hit: no trial.
        if not (keyed and one.true is not None and bool(answer == one.true)):
            trials.append(hit)
            process.update(hit)
        if process.p_value + miss <= queries.alpha and not keyed and not decoys:
            decoys = _ask_decoys(queries)
            rate = bounded_rate(decoys, miss)
            process = EProcess.of(rate, trials)
        if process.p_value + miss <= queries.alpha or process.reachable(len(samples) - asked) + miss > queries.alpha:
            break
    rests = (_DRAWN, _ANY_MODEL)
    if not keyed:
        common = _NO_MORE.format(_answer(key), len(decoys)) if decoys else _HALF.format(_answer(key))
        rests = (common, "whatever it answered before does not make its next hit likelier")
    unbounded = not keyed and not decoys
    return Finding(
        hits=hits, trials=asked, p_value=1.0 if unbounded else min(1.0, process.p_value + miss),
        e_value=process.e_value, null_rate=rate, decoy_rate=_worst(decoys) if decoys else None, decoys=len(decoys),
        counts={"open": process.trials}, assumptions=rests,
    )  # fmt: skip


@_procedure("keyed", "exact binomial over the draw of the keyed labels", ("keyed",))
def keyed(queries: SuspectQueries) -> Finding:
    """Exact binomial over the samples that were not answered with their true class."""
    samples = queries.samples
    found = queries.ask(samples.images)
    hits = int((found == samples.labels).sum())
    open_ = len(samples) if samples.true is None else int((found != samples.true).sum())
    with_truth = samples.true is not None
    p_value = keyed_p_value(hits, open_, queries.key.classes, with_truth=with_truth)
    return Finding(
        hits=hits, trials=len(samples), p_value=p_value,
        null_rate=keyed_rate(queries.key.classes, with_truth=with_truth),
        counts={"open": open_, "rareness": rareness(p_value)},
        assumptions=(_DRAWN, _ANY_MODEL),
    )  # fmt: skip


@_procedure("references", "exact binomial, null rate bounded by the worst reference model held back", ("stored",))
def references(queries: SuspectQueries) -> Finding:
    """Exact binomial, null rate bounded by the worst reference model of a fingerprint."""
    fingerprint = queries.key.fingerprint
    if fingerprint is None:
        raise InputError("reference models belong to a fingerprint, which this key is not.")
    hits, nulls = queries.hits(queries.samples), fingerprint.nulls
    p_value, null_rate = bounded_binomial(hits, len(queries.samples), nulls, queries.alpha * MISS_SHARE)
    return Finding(
        hits=hits, trials=len(queries.samples), p_value=p_value, null_rate=null_rate,
        counts={"references": len(nulls), "reference_rate": _worst(nulls)},
        assumptions=(
            _LIKE_REFERENCES.format(len(nulls)), _INDEPENDENT,
            "whoever made the fingerprint is honest: queries, labels and the reference models' hits are theirs",
        ),
    )  # fmt: skip


_OWN: Mapping[Labels, str] = {
    "codebook": "codebook",
    "fixed": "binomial",
    "keyed": "keyed",
    "untargeted": "paired",
    "stored": "references",
}


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
