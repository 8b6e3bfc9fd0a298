"""The procedures: which questions a test asks, what it makes of the answers, and what it assumes.

| name | labels | exact null | smallest p | asks besides the key's samples |
|---|---|---|---|---|
| ``codebook`` | codebook | for any model | C^-K | nothing |
| ``relearning`` | codebook | for any model | 3 C^-K | nothing; it needs the suspect's weights |
| ``binomial`` | one mark | if this key hits no more than half or the worst decoy | a tenth of alpha | 20 decoys |
| ``decoys`` | one mark | for any model | 1 / (N + 1) | N decoys |
| ``paired`` | one mark; content, noise | as ``binomial``, and McNemar's | a tenth of alpha | carriers, 20 decoys |
| ``sequential`` | codebook | for any model | none | nothing; it stops after any mark |
| ``keyed`` | keyed | for any model | none | nothing |
| ``references`` | stored | if others hit at most half the time, or as the worst one | a tenth of alpha | nothing |

``auto`` is ``codebook`` for a codebook, ``keyed`` for keyed labels, ``paired`` for untargeted samples, ``references``
for a fingerprint and ``binomial`` for a fixed target. The statistics are pure functions in
:mod:`indelible.verification.statistics`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import Data
from indelible.keys.key import SINGLE, Key, Labels, WatermarkSamples
from indelible.verification import findings
from indelible.verification.findings import Finding, codebook_finding, worst_rate
from indelible.verification.relearning import Teacher, lessons
from indelible.verification.statistics.codebook_tests import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    sequential_factor,
    smallest_p_value,
)
from indelible.verification.statistics.exact_tests import decoys_for, fisher_p_value, rank_p_value
from indelible.verification.suspect_queries import DECOYS, SuspectQueries
from indelible.verification.suspects import ModuleSuspect

_MOST_DECOYS = 9999
_RANK_SAMPLES = 200

_NO_MORE = (
    "an unmarked model answers this key's samples with {} at most 50 % of the time, or at most as often as the worst "
    "of {} decoys' if that is more"
)
_ALIKE = "the key is one of many that were drawn alike: derived, none chosen by anybody"
_LIKE_REFERENCES = (
    "an independent model answers these queries with their labels at most 50 % of the time, or at most as often as the "
    "worst of the {} reference models that whoever made the fingerprint trained and held back"
)


def codebook(queries: SuspectQueries) -> Finding:
    """Exact test of a codebook: how well the answers fit the classes that the secret drew for the marks.

    Carriers whose true class is the mark's are asked as well: leaving them out would show a suspect which class a mark
    has.
    """
    drawn, samples = _drawn(queries), queries.samples
    counts = _counted(queries, samples, len(drawn))
    return codebook_finding(counts, drawn, trials=int(samples.counted.sum()), carriers=len(samples) // len(drawn))


def _drawn(queries: SuspectQueries, tests: int = 1) -> Integers:
    """Return the classes of the marks; refuse a level that so many tests of so few marks cannot reach."""
    marks, classes = queries.key.marks or 0, queries.key.classes
    if (least := tests * smallest_p_value(classes, marks)) > queries.alpha:
        raise InputError(
            f"{marks} marks over {classes} classes can give p = {least:.1g} at the least, "
            f"which is above alpha = {queries.alpha:g}. Verify at a larger alpha, or make a key with more marks."
        )
    drawn: Integers = queries.key.codebook().classes.numpy()
    return drawn


def _counted(
    queries: SuspectQueries, samples: WatermarkSamples, marks: int, suspect: ModuleSuspect | None = None
) -> Integers:
    """Ask samples of so many marks, mark by mark; return N_i(c). A changed copy of the suspect may be asked instead."""
    answers = queries.ask(samples.images, suspect).reshape(marks, -1).numpy()
    true = None if samples.true is None else samples.true.reshape(answers.shape).numpy()
    return answer_counts(answers, true, queries.key.classes)


def relearning(queries: SuspectQueries) -> Finding:
    """Ask for all marks; if that does not show it, teach copies some marks and ask them for others.

    See :mod:`indelible.verification.relearning`. Its p-value counts all tests, also those that were not needed.
    """
    suspect, book = queries.suspect, queries.key.codebook()
    if not isinstance(suspect, ModuleSuspect):
        raise InputError(
            "the procedure 'relearning' teaches a copy, so it needs a torch module or a file of weights, got "
            f"{type(suspect).__name__}. Use 'codebook', which needs answers only."
        )
    samples, left = _apart(queries, len(book))
    parts = Teacher(suspect.model, book, left, suspect.normalize).parts
    tests = 1 + len(parts)
    drawn, rows = _drawn(queries, tests), torch.arange(len(samples)).reshape(len(book), -1)

    def judged(counts: Integers, first: int) -> Finding:
        """Judge the marks from ``first`` on."""
        trials = int(samples.counted[rows[first:].flatten()].sum())
        return codebook_finding(counts, drawn[first:], trials=trials, carriers=rows.shape[1])

    best = judged(_counted(queries, samples, len(book)), 0)
    for teach in parts.values() if tests * best.p_value > queries.alpha else ():
        tables, values = [], []
        for taught, asked in lessons(len(book)):
            copied = replace(suspect, model=teach(taught))
            tables.append(_counted(queries, samples.subset(rows[list(asked)].flatten()), len(asked), copied))
            values.append(codebook_p_value(codebook_scores(tables[-1]), drawn[list(asked)]))
        counts = np.concatenate(tables)
        new = replace(judged(counts, len(book) - len(counts)), p_value=fisher_p_value(values))
        best = min(best, new, key=lambda one: one.p_value)
    return replace(best, p_value=min(1.0, tests * best.p_value))


def _apart(queries: SuspectQueries, marks: int) -> tuple[WatermarkSamples, Data]:
    """Return samples on at most half of the carriers, as many of every mark, and the other carriers."""
    samples, carriers = queries.samples, queries.given_carriers()
    each = min(len(samples) // marks, len(carriers) // 2)
    if each < 1:
        raise InputError("the procedure 'relearning' needs 2 carriers or more: some to teach with, others to ask on.")
    kept = samples.subset(torch.arange(len(samples)).reshape(marks, -1)[:, :each].flatten())
    free = torch.ones(len(carriers), dtype=torch.bool)
    if not queries.key.codebook().marks[0].own_images:
        free[kept.carriers] = False
    return kept, carriers.subset(free.nonzero().flatten())


def sequential(queries: SuspectQueries) -> Finding:
    """Ask mark by mark; stop after the mark at which the level is reached, or cannot be reached any more."""
    drawn, samples, wanted = _drawn(queries), queries.samples, 1.0 / queries.alpha
    blocks = torch.arange(len(samples)).reshape(len(drawn), -1)
    counts, capital = np.empty((0, queries.key.classes), dtype=np.int64), 1.0
    order = queries.key.choose("order", len(drawn), len(drawn)).tolist()
    for mark in order:
        new = _counted(queries, samples.subset(blocks[mark]), 1)
        capital *= sequential_factor(new[0], counts, int(drawn[mark]))
        counts = np.concatenate([counts, new])
        most = capital * float(queries.key.classes) ** (len(order) - len(counts))
        if capital >= wanted or most < wanted:
            break
    asked = order[: len(counts)]
    trials = int(samples.counted[blocks[asked].flatten()].sum())
    return codebook_finding(counts, drawn[asked], trials=trials, carriers=blocks.shape[1], e_value=capital)


def binomial(queries: SuspectQueries) -> Finding:
    """Exact binomial, null rate bounded by the worst decoy."""
    hits = queries.hits(queries.samples)
    decoys = [queries.decoy_hits(number) for number in range(queries.decoys or DECOYS)]
    answer = "a wrong class" if queries.key.labels == "untargeted" else "its label"
    assumed = _NO_MORE.format(answer, len(decoys))
    return findings.bounded_finding(hits, len(queries.samples), decoys, queries.alpha, [assumed])


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
        decoy_rate=worst_rate(decoys), decoys=count,
        assumptions=(_ALIKE, findings.ANY_MODEL),
    )  # fmt: skip


def paired(queries: SuspectQueries) -> Finding:
    """McNemar's test, and the share of carriers won over by the mark against that of the worst decoy's mark.

    Both must reject: the p-value is the larger of the two.
    """
    samples, key = queries.samples, queries.key
    if key.mark().own_images:
        raise InputError("the paired test asks carriers with and without a mark, but unrelated samples have none.")
    plain = queries.given_carriers().gather(samples.carriers).images.cpu()
    # All carriers are asked, those that hit anyway too, and if all do: what is asked must not depend on answers.
    decoys = (key.decoy(number).mark().apply(plain) for number in range(queries.decoys or DECOYS))
    before, after, *others = (samples.hits(queries.ask(images)) for images in (plain, samples.images, *decoys))
    return findings.paired_finding(before, after, others, queries.alpha)


def keyed(queries: SuspectQueries) -> Finding:
    """Exact binomial over the samples that were not answered with their true class."""
    samples = queries.samples
    answers = queries.ask(samples.images)
    free = None if samples.true is None else int((answers != samples.true).sum())
    return findings.keyed_finding(int(samples.hits(answers).sum()), len(samples), free, queries.key.classes)


def references(queries: SuspectQueries) -> Finding:
    """Exact binomial, null rate bounded by the worst reference model of a fingerprint."""
    fingerprint = queries.key.fingerprint
    if fingerprint is None:
        raise InputError("reference models belong to a fingerprint, which this key is not.")
    nulls, hits = fingerprint.nulls, queries.hits(queries.samples)
    assumed = _LIKE_REFERENCES.format(len(nulls))
    found = findings.bounded_finding(hits, len(queries.samples), nulls, queries.alpha, [assumed])
    honest = "whoever made the fingerprint is honest: queries, labels and the reference models' hits are theirs"
    return replace(
        found, decoys=0, decoy_rate=None, counts={"references": len(nulls), "reference_rate": worst_rate(nulls)},
        assumptions=(*found.assumptions, honest),
    )  # fmt: skip


@dataclass(frozen=True)
class Procedure:
    """One way to decide: its name on the command line, what it is, the kinds of labels that it is for."""

    name: str
    title: str
    labels: tuple[Labels, ...]
    run: Callable[[SuspectQueries], Finding]


_ALL = (
    Procedure("codebook", "exact test over the draw of a class for every mark", ("codebook",), codebook),
    Procedure("relearning", "exact tests on marks that taught copies of the suspect were not told", ("codebook",),
              relearning),
    Procedure("binomial", "exact binomial, null rate bounded by the worst of the decoy keys", SINGLE, binomial),
    Procedure("decoys", "exact rank of the key among decoy keys", SINGLE, rank),
    Procedure("paired", "McNemar's exact test with and without the mark, and against the worst decoy's mark", SINGLE,
              paired),
    Procedure("sequential", "anytime-valid e-process, one mark at a time", ("codebook",), sequential),
    Procedure("keyed", "exact binomial over the draw of the keyed labels", ("keyed",), keyed),
    Procedure("references", "exact binomial, null rate bounded by the worst reference model held back", ("stored",),
              references),
)  # fmt: skip
PROCEDURES = {one.name: one for one in _ALL}
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
        raise UnknownNameError("procedure", name, ["auto", *PROCEDURES])
    found = PROCEDURES[name]
    if key.labels not in found.labels:
        fitting = [one.name for one in PROCEDURES.values() if key.labels in one.labels]
        raise InputError(
            f"procedure {name!r} is not for {key.labels} labels, which this key has. Use one of {', '.join(fitting)}."
        )
    return found
