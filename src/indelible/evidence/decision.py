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
from indelible.verification import findings
from indelible.verification.statistics.codebook import answer_counts

if TYPE_CHECKING:
    from indelible.evidence.commitment import Commitment

TEST, KEYED, CODEBOOK = "binomial, worst of 20 decoys", "binomial, keyed labels", "codebook"
PAIRED = "paired, worst of 20 decoys"
WITH_DECOYS, DRAWN = (TEST, PAIRED), (KEYED, CODEBOOK)
_TOLERANCE = 1e-6
_BINDING = {"set aside": "carriers", "auditor": "auditor", "none": "key"}
_HITS = (
    "{0.hits} of {0.trials} opened samples were answered with their committed labels; a model that never saw the key "
    "does that with probability at most {0.p_value:.1e} (chance of a hit at most {0.null_rate:.3f})."
)
_SAYS = {
    TEST: _HITS,
    KEYED: _HITS,
    PAIRED: (
        "of {0.counts[free]} carriers that were answered right, the mark turned {0.counts[gained]} wrong, and "
        "{0.counts[lost]} right that were wrong; with a model that never saw the key, a mark does as much with "
        "probability at most {0.p_value:.1e}."
    ),
    CODEBOOK: (
        "{0.counts[held]} of {0.counts[marks]} opened marks are answered with the class that was drawn for them "
        "({0.hits} of {0.trials} answers); a model that never saw the key does as well with probability at most "
        "{0.p_value:.1e}."
    ),
}


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
        found = findings.paired_finding(before, given != true, others, level)
        return _verdict(found, PAIRED, level, len(given) * (1 + len(asked)), found.counts, literal=literal)
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
    queries = trials + sum(asked for _, asked in decoys)
    if decoys:
        return _verdict(findings.bounded_finding(hits, trials, decoys, alpha), TEST, alpha, queries, literal=literal)
    return _verdict(findings.keyed_finding(hits, trials, free, classes), KEYED, alpha, queries, literal=literal)


def decide_codebook(
    answers: Tensor, true: Tensor | None, drawn: Tensor, *, alpha: float, classes: int, binding: str
) -> dict[str, Any]:
    """Return the verdict on a codebook as JSON values.

    ``answers`` (int64, (m, n)) are to every opened mark on every carrier, ``true`` (n,) the classes of the carriers,
    None for images that belong to no class, ``drawn`` (m,) the classes of the marks; ``binding`` as in a verdict.
    """
    counts = answer_counts(answers.numpy(), None if true is None else true.numpy(), classes)
    trials = answers.numel() if true is None else int((true[None] != drawn[:, None]).sum())
    found = findings.codebook_finding(counts, drawn.numpy(), trials=trials, carriers=answers.shape[1])
    more = {**found.counts, "drawn": drawn.tolist(), "table": counts.tolist(), "binding": binding}
    return _verdict(found, CODEBOOK, alpha, answers.numel(), more)


def _verdict(
    found: findings.Finding, test: str, alpha: float, queries: int, more: Mapping[str, Any] | None = None, *,
    literal: bool = False,
) -> dict[str, Any]:  # fmt: skip
    owned = found.p_value <= alpha
    said = "Derived from a model that carries the committed watermark"
    if not owned:
        said = "Not shown to be derived from the committed model"
    public = " The marks are the paper's public ones: this carries no weight against forgery." if literal else ""
    return {
        "test": test, "alpha": alpha, "hits": found.hits, "trials": found.trials,
        "wsr": found.hits / found.trials if found.trials else 0.0, "decoy_rate": found.decoy_rate,
        "null_rate": found.null_rate, "p_value": found.p_value, "owned": owned, "queries": queries, **(more or {}),
        "sentence": f"{said}: {_SAYS[test].format(found)}{public}",
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
