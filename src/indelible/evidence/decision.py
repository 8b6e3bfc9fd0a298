"""The verdict of a claim, from counts alone: what an auditor computes again.

| test | null rate | for |
|---|---|---|
| ``binomial, worst of 20 decoys`` | upper limit of the worst decoy's hit rate, as in ``verify`` | others |
| ``binomial, keyed labels`` | that of the draw of the labels | keyed |
| ``paired, worst of 20 decoys`` | McNemar's, and the worst decoy's share of the carriers won over | untargeted |
| ``codebook`` | none: exact over the drawn classes | codebook |

The statistics are those of :mod:`indelible.verification.statistics`, the figures those of :func:`indelible.verify`. A
claim asks :func:`judge` with the suspect; a check asks it again, with the answers of the query log.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from indelible.evidence.opening import Questions
from indelible.verification.procedures import MISS_SHARE, codebook_finding
from indelible.verification.statistics.codebook import answer_counts
from indelible.verification.statistics.exact_tests import bounded_binomial, keyed_p_value, keyed_rate, paired_test

if TYPE_CHECKING:
    from indelible.evidence.commitment import Commitment

TEST, KEYED, CODEBOOK = "binomial, worst of 20 decoys", "binomial, keyed labels", "codebook"
PAIRED = "paired, worst of 20 decoys"
WITH_DECOYS = (TEST, PAIRED)
_TOLERANCE = 1e-6
_BINDING = {"set aside": "carriers", "auditor": "auditor", "none": "key"}
_LITERAL = " The marks are the paper's public ones: this carries no weight against forgery."


def test_of(key: Mapping[str, Any]) -> str:
    """Return the test that a key's settings call for."""
    own = {"keyed": KEYED, "codebook": CODEBOOK, "untargeted": PAIRED}
    return own.get(str(key.get("labels")), TEST)


def judge(stated: "Commitment", questions: Questions, ask: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Ask (or look up) every question and return the verdict as JSON values."""
    given, true, level = ask(questions.samples), questions.true, stated.alpha / stated.claims
    classes, literal = int(stated.key["classes"]), stated.key["scheme"] == "paper"
    if stated.codebook is not None:
        answers, binding = given.reshape(len(questions.labels), -1), _BINDING[stated.codebook["carriers"]]
        return decide_codebook(answers, true, questions.labels, alpha=level, classes=classes, binding=binding)
    assert true is not None, "only a codebook asks images without a class"  # noqa: S101 - see Questions
    if questions.plain is not None:
        # Held against the carriers' classes: other committed labels would hit by themselves.
        asked = [questions.plain, *(one.images for one in questions.decoys)]
        before, *others = [ask(images) != true for images in asked]
        return decide_paired(before, given != true, others, alpha=level, literal=literal)
    decoys = [(int(one.hits(ask(one.images)).sum()), len(one)) for one in questions.decoys]
    free = None if stated.key["kind"] == "unrelated" else int((given != true).sum())
    hits = int((given == questions.labels).sum())
    return decide(hits, len(given), decoys, alpha=level, classes=classes, free=free, literal=literal)


def decide(
    hits: int, trials: int, decoys: Sequence[tuple[int, int]], *, alpha: float, classes: int, free: int | None = None,
    literal: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the verdict of :data:`TEST` with the (hits, trials) of each decoy key, without any of :data:`KEYED`.

    ``free`` samples were not answered with their true class, the others could not hit a keyed label; None if they have
    no true class. ``literal``: the marks are the paper's public ones.
    """
    decoy_rate = max((found / asked for found, asked in decoys), default=None)
    if decoys:
        p_value, null_rate = bounded_binomial(hits, trials, decoys, alpha * MISS_SHARE)
    else:
        with_truth = free is not None
        null_rate = keyed_rate(classes, with_truth=with_truth)
        p_value = keyed_p_value(hits, trials if free is None else free, classes, with_truth=with_truth)
    found = (
        f"{hits} of {trials} opened samples were answered with their committed labels; a model that never saw the key "
        f"does that with probability at most {p_value:.1e} (chance of a hit at most {null_rate:.3f})."
    )
    return _verdict(
        TEST if decoys else KEYED, alpha, p_value, hits, trials, trials + sum(asked for _, asked in decoys),
        found + _LITERAL * literal, null_rate=null_rate, decoy_rate=decoy_rate,
    )  # fmt: skip


def decide_paired(
    before: Tensor, after: Tensor, decoys: Sequence[Tensor], *, alpha: float, literal: bool = False
) -> dict[str, Any]:
    """Return the verdict on untargeted samples as JSON values.

    Each tensor (bool, (n,)) says which carriers are answered wrongly: without a mark, with the key's, with a decoy's.
    """
    test = paired_test(before, after, decoys, alpha * MISS_SHARE)
    found = (
        f"of {test.free} carriers that were answered right, the mark turned {test.gained} wrong, and {test.lost} right "
        f"that were wrong; with a model that never saw the key, a mark does as much with probability at most "
        f"{test.p_value:.1e}."
    )
    return _verdict(
        PAIRED, alpha, test.p_value, test.hits, test.trials, test.trials * (2 + len(decoys)),
        found + _LITERAL * literal, decoy_rate=test.decoy_rate, null_rate=test.null_rate, gained=test.gained,
        lost=test.lost, free=test.free, mcnemar_p=test.mcnemar_p,
    )  # fmt: skip


def decide_codebook(
    answers: Tensor, true: Tensor | None, drawn: Tensor, *, alpha: float, classes: int, binding: str
) -> dict[str, Any]:
    """Return the verdict on a codebook as JSON values.

    ``answers`` (int64, (m, n)) are to every opened mark on every carrier, ``true`` (n,) the classes of the carriers,
    None for images that belong to no class, ``drawn`` (m,) the classes of the marks; ``binding`` as in a verdict.
    """
    marks, each = answers.shape
    counts = answer_counts(answers.numpy(), None if true is None else true.numpy(), classes)
    trials = marks * each if true is None else int((true[None] != drawn[:, None]).sum())
    test = codebook_finding(counts, drawn.numpy(), trials=trials, carriers=each)
    found = (
        f"{test.counts['held']} of {marks} opened marks are answered with the class that was drawn for them "
        f"({test.hits} of {trials} answers); a model that never saw the key does as well with probability at most "
        f"{test.p_value:.1e}."
    )
    return _verdict(
        CODEBOOK, alpha, test.p_value, test.hits, trials, marks * each, found, **test.counts, drawn=drawn.tolist(),
        table=counts.tolist(), binding=binding,
    )  # fmt: skip


def _verdict(
    test: str, alpha: float, p_value: float, hits: int, trials: int, queries: int, found: str, **more: Any
) -> dict[str, Any]:
    owned = p_value <= alpha
    said = "Derived from a model that carries the committed watermark"
    if not owned:
        said = "Not shown to be derived from the committed model"
    return {
        "test": test, "alpha": alpha, "hits": hits, "trials": trials, "wsr": hits / trials if trials else 0.0,
        "decoy_rate": None, "null_rate": None, "p_value": p_value, "owned": owned, "queries": queries, **more,
        "sentence": f"{said}: {found}",
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
