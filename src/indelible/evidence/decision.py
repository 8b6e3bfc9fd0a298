"""The verdict of a claim, from counts alone: what an auditor computes again.

| test | null rate | for |
|---|---|---|
| ``binomial, worst of 20 decoys`` | upper limit of the worst decoy's hit rate, as in :mod:`indelible.verify` | others |
| ``binomial, keyed labels`` | that of the draw of the labels (:mod:`indelible.verify.statistics.keyed`) | keyed |
| ``codebook`` | none: exact over the draw of the classes (:mod:`indelible.verify.statistics.codebook`) | codebook |

The decoys of a claim are those of the key; they are drawn on the committed carriers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from indelible.base.errors import InputError
from indelible.verify.statistics import (
    answer_counts,
    bounded_binomial,
    codebook_p_value,
    codebook_scores,
    held_marks,
    keyed_p_value,
    keyed_rate,
)

__all__ = ["CODEBOOK", "KEYED", "TEST", "TESTS", "decide", "decide_codebook", "same", "test_of"]

TEST, KEYED, CODEBOOK = "binomial, worst of 20 decoys", "binomial, keyed labels", "codebook"
TESTS = (TEST, KEYED, CODEBOOK)
# The chance that the decoys' limit is wrong is a tenth of alpha, as in every verdict.
_MISS_SHARE = 0.1
_TOLERANCE = 1e-6
_OWNED = "Derived from a model that carries the committed watermark"
_NOT_SHOWN = "Not shown to be derived from the committed model"


def test_of(key: Mapping[str, Any]) -> str:
    """Return the test that a key's settings call for."""
    own = {"keyed": KEYED, "codebook": CODEBOOK}
    return own.get(str(key.get("labels")), TEST)


def decide(
    test: str, hits: int, trials: int, decoys: Sequence[tuple[int, int]], *, alpha: float, classes: int,
    free: int | None = None, with_truth: bool = True, literal: bool = False, untargeted: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the verdict as JSON values.

    Args:
        test: :data:`TEST` or :data:`KEYED`; a codebook has :func:`decide_codebook`.
        hits: Opened samples answered with their labels; untargeted ones, with another class than their carrier's.
        trials: Opened samples.
        decoys: (hits, trials) of each decoy key.
        alpha: Level of the decision.
        classes: Classes of the task.
        free: Keyed labels: samples that were not answered with their true class; the others could not hit.
        with_truth: Keyed labels: samples have a true class.
        literal: The marks are the paper's public ones.
        untargeted: The samples are to be answered wrongly, with whichever class.
    """
    decoy_rate: float | None = None
    if test == KEYED:
        null_rate = keyed_rate(classes, with_truth=with_truth)
        p_value = keyed_p_value(hits, trials if free is None else free, classes, with_truth=with_truth)
    elif test == TEST:
        p_value, null_rate = bounded_binomial(hits, trials, decoys, alpha * _MISS_SHARE)
        decoy_rate = max(found / asked for found, asked in decoys)
    else:
        raise InputError(f"unknown test {test!r:.80}: this version knows {', '.join(TESTS)}.")
    owned = p_value <= alpha
    return {
        "test": test, "alpha": alpha, "hits": hits, "trials": trials, "wsr": hits / trials, "decoy_rate": decoy_rate,
        "null_rate": null_rate, "p_value": p_value, "owned": owned,
        "queries": trials + sum(asked for _, asked in decoys),
        "sentence": _sentence(owned, hits, trials, p_value, null_rate, literal=literal, untargeted=untargeted),
    }  # fmt: skip


def decide_codebook(
    answers: Tensor, true: Tensor | None, drawn: Tensor, *, alpha: float, classes: int, binding: str
) -> dict[str, Any]:
    """Return the verdict on a codebook as JSON values; the figures are those of :func:`indelible.verify`.

    Args:
        answers: int64 (m, n), to every opened mark on every carrier.
        true: int64 (n,), classes of the carriers; None for images that belong to no class.
        drawn: int64 (m,), the classes of the opened marks.
        alpha: Level of the decision.
        classes: C.
        binding: Who could have chosen what was asked, as in :class:`indelible.verify.Verdict`.
    """
    marks, each = answers.shape
    counts = answer_counts(answers.numpy(), None if true is None else true.numpy(), classes)
    scores, own = codebook_scores(counts), drawn.numpy()
    hits, held, p_value = int(counts[range(marks), own].sum()), held_marks(scores, own), codebook_p_value(scores, own)
    trials = marks * each if true is None else int((true[None] != drawn[:, None]).sum())
    owned = p_value <= alpha
    found = (
        f"{held} of {marks} opened marks are answered with the class that was drawn for them ({hits} of {trials} "
        f"answers); a model that never saw the key does as well with probability at most {p_value:.1e}."
    )
    return {
        "test": CODEBOOK, "alpha": alpha, "hits": hits, "trials": trials, "wsr": hits / trials if trials else 0.0,
        "decoy_rate": None, "null_rate": None, "p_value": p_value, "owned": owned, "queries": marks * each,
        "marks": marks, "held": held, "carriers": each, "drawn": drawn.tolist(), "table": counts.tolist(),
        "binding": binding, "sentence": f"{_OWNED if owned else _NOT_SHOWN}: {found}",
    }  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Tell whether two verdicts agree; numbers may differ by rounding, as between two machines."""
    # JSON has one kind of number: 1.0 comes back as 1. True and false are none.
    if {type(one), type(other)} <= {int, float}:
        return bool(abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() - {"sentence"}
        return names == other.keys() - {"sentence"} and all(same(one[name], other[name]) for name in names)
    return type(one) is type(other) and bool(one == other)


def _sentence(
    owned: bool, hits: int, trials: int, p_value: float, null_rate: float, *, literal: bool, untargeted: bool
) -> str:
    answers = "another class than their carriers'" if untargeted else "their committed labels"
    found = (
        f"{hits} of {trials} opened samples were answered with {answers}; a model that never saw the key "
        f"does that with probability at most {p_value:.1e} (chance of a hit at most {null_rate:.3f})."
    )
    weight = " The marks are the paper's public ones: this carries no weight against forgery." * literal
    return f"{_OWNED if owned else _NOT_SHOWN}: {found}{weight}"
