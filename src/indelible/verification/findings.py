"""Findings: what counted answers show, in figures and words, and what the p-value assumes.

Pure functions of counts: :mod:`indelible.verification.procedures` counts the answers of a suspect,
:mod:`indelible.evidence.decision` those of a query log, and both come to the same finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from indelible.verification.statistics.codebook_tests import Integers, codebook_p_value, codebook_scores, held_marks
from indelible.verification.statistics.exact_tests import (
    bounded_binomial,
    keyed_p_value,
    keyed_rate,
    mcnemar,
    rareness,
)

# The chance that the decoys' limit is wrong is a tenth of alpha: small beside it, and it costs few queries.
MISS_SHARE = 0.1
CLASSES_DRAWN = "the classes of the marks are those that the secret draws, unknown to whoever made the model"
LABELS_DRAWN = "the labels are those that the secret draws, unknown to whoever made the model"
ANY_MODEL = "nothing is assumed of the model: its answers may favour a class and depend on each other"
INDEPENDENT = "its answers to different samples are independent"
_WON = (
    "this mark wins over at most 50 % of the answers of an unmarked model, or at most as many as the worst of {} "
    "decoys', or it reacts to no mark at all"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a test found; :class:`indelible.Verdict`, which is one, says what each field is."""

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


def worst_rate(decoys: Sequence[tuple[int, int]]) -> float:
    """Return the largest rate of (hits, trials)."""
    return max(hits / trials for hits, trials in decoys)


def codebook_finding(
    counts: Integers, drawn: Integers, *, trials: int, carriers: int, e_value: float | None = None
) -> Finding:
    """Judge N_i(c) of the marks that were asked, each on so many carriers."""
    scores = codebook_scores(counts)
    p_value = codebook_p_value(scores, drawn) if e_value is None else min(1.0, 1.0 / max(e_value, 1e-300))
    return Finding(
        hits=int(counts[np.arange(len(drawn)), drawn].sum()), trials=trials, p_value=p_value, e_value=e_value,
        counts={"marks": len(drawn), "held": held_marks(scores, drawn), "carriers": carriers},
        assumptions=(CLASSES_DRAWN, ANY_MODEL), table=tuple(tuple(row) for row in counts.tolist()),
        drawn=tuple(drawn.tolist()),
    )  # fmt: skip


def bounded_finding(
    hits: int, trials: int, decoys: Sequence[tuple[int, int]], alpha: float, assumptions: Sequence[str] = ()
) -> Finding:
    """Judge hits whose null rate is bounded by the (hits, trials) of each decoy."""
    p_value, null_rate = bounded_binomial(hits, trials, decoys, alpha * MISS_SHARE)
    return Finding(
        hits=hits, trials=trials, p_value=p_value, null_rate=null_rate, decoy_rate=worst_rate(decoys),
        decoys=len(decoys), assumptions=(*assumptions, INDEPENDENT),
    )  # fmt: skip


def keyed_finding(hits: int, trials: int, free: int | None, classes: int) -> Finding:
    """Judge hits of drawn labels; ``free`` samples were not answered with their true class, None if they have none."""
    with_truth, free = free is not None, trials if free is None else free
    null_rate = keyed_rate(classes, with_truth=with_truth)
    p_value = keyed_p_value(hits, free, classes, with_truth=with_truth)
    return Finding(
        hits=hits, trials=trials, p_value=p_value, null_rate=null_rate,
        counts={"open": free, "rareness": rareness(p_value)}, assumptions=(LABELS_DRAWN, ANY_MODEL),
    )  # fmt: skip


def paired_finding(before: Tensor, after: Tensor, decoys: Sequence[Tensor], alpha: float) -> Finding:
    """Compare hits (bool, (n,)) without a mark, with the key's and with each decoy's; both tests must reject.

    Counted are ``gained`` and ``lost``, hits with the mark only and without it only, and ``free``, the carriers that
    are no hit without a mark, which a mark can win over; the rates are shares of them.
    """
    gained, lost, free = (int(rows.sum()) for rows in (after & ~before, before & ~after, ~before))
    won = [(int((one & ~before).sum()), free) for one in decoys]
    bounded, null_rate = 1.0, 1.0
    if free > 0:  # else all carriers are hits as they are, and nothing can be shown
        bounded, null_rate = bounded_binomial(gained, free, won, alpha * MISS_SHARE)
    sign = mcnemar(gained, lost)
    return Finding(
        hits=int(after.sum()), trials=len(after), p_value=max(bounded, sign), null_rate=null_rate,
        decoy_rate=worst_rate(won) if free else None, decoys=len(decoys),
        counts={"gained": gained, "lost": lost, "free": free, "mcnemar_p": sign},
        assumptions=(_WON.format(len(decoys)), INDEPENDENT),
    )  # fmt: skip
