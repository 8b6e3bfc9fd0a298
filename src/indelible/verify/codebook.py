"""Asking a codebook: every mark on the same carriers, all at once or mark by mark.

The statistics are in :mod:`indelible.verify.statistics.codebook`. Carriers whose true class is the mark's are asked as
well: leaving them out would show a suspect which class a mark has.
"""

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.keys.key import WatermarkSamples
from indelible.verify.inquiry import Finding, Inquiry
from indelible.verify.statistics import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    held_marks,
    sequential_factor,
    smallest_p_value,
)

__all__ = ["ANY_MODEL", "codebook", "codebook_sequential"]

ANY_MODEL = "nothing is assumed of the model: its answers may favour a class and depend on each other"
_CLASSES = "the classes of the marks are those that the secret draws, unknown to whoever made the model"


def codebook(inquiry: Inquiry) -> Finding:
    """Exact test of a codebook: how well the answers fit the classes that the secret drew for the marks."""
    drawn = _drawn(inquiry)
    counts = _counted(inquiry, inquiry.ask(inquiry.samples.images), len(drawn))
    return _finding(counts, drawn, inquiry.samples)


def _finding(counts: Integers, drawn: Integers, samples: WatermarkSamples, e_value: float | None = None) -> Finding:
    """Return the finding for N_i(c) of the marks that were asked."""
    scores = codebook_scores(counts)
    hits, trials = int(counts[np.arange(len(drawn)), drawn].sum()), int(samples.counted.sum())
    p_value = codebook_p_value(scores, drawn) if e_value is None else min(1.0, 1.0 / max(e_value, 1e-300))
    figures = {"marks": len(drawn), "held": held_marks(scores, drawn), "carriers": len(samples) // len(drawn)}
    return Finding(
        hits=hits, trials=trials, p_value=p_value, e_value=e_value, counts=figures, assumptions=(_CLASSES, ANY_MODEL),
        table=tuple(tuple(row) for row in counts.tolist()), drawn=tuple(drawn.tolist()),
    )  # fmt: skip


def _drawn(inquiry: Inquiry) -> Integers:
    """Return the classes of the marks; refuse a level that so few marks cannot reach."""
    drawn: Integers = inquiry.key.codebook().classes.numpy()
    least = smallest_p_value(inquiry.key.classes, len(drawn))
    if least > inquiry.alpha:
        raise InputError(
            f"{len(drawn)} marks over {inquiry.key.classes} classes can give p = {least:.1g} at the least, which is "
            f"above alpha = {inquiry.alpha:g}. Verify at a larger alpha, or make a key with more marks."
        )
    return drawn


def _counted(inquiry: Inquiry, answers: Tensor, marks: int) -> Integers:
    """Return N_i(c) for answers to the samples, mark by mark."""
    rows = answers.reshape(marks, -1).numpy()
    true = inquiry.samples.true
    return answer_counts(rows, None if true is None else true[: rows.shape[1]].numpy(), inquiry.key.classes)


def codebook_sequential(inquiry: Inquiry) -> Finding:
    """Ask mark by mark; stop after the mark at which the level is reached, or cannot be reached any more."""
    drawn, samples = _drawn(inquiry), inquiry.samples
    each, order = len(samples) // len(drawn), inquiry.key.choose("order", len(drawn), len(drawn)).tolist()
    asked: list[int] = []
    counts = np.empty((0, inquiry.key.classes), dtype=np.int64)
    capital = 1.0
    for mark in order:
        rows = torch.arange(mark * each, (mark + 1) * each)
        new = _counted(inquiry, inquiry.ask(samples.images[rows]), 1)
        capital *= sequential_factor(new[0], counts, int(drawn[mark]))
        counts, asked = np.concatenate([counts, new]), [*asked, mark]
        most = capital * float(inquiry.key.classes) ** (len(order) - len(asked))
        if capital >= 1.0 / inquiry.alpha or most < 1.0 / inquiry.alpha:
            break
    rows = torch.cat([torch.arange(mark * each, (mark + 1) * each) for mark in asked])
    return _finding(counts, drawn[asked], samples.subset(rows), capital)
