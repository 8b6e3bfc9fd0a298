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

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from indelible.evidence.opening import Questions
from indelible.verification import findings
from indelible.verification.statistics.codebook_tests import answer_counts

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
    given, true, labels = ask(questions.samples), questions.true, questions.labels
    alpha, classes, more = stated.alpha / stated.claims, int(stated.key["classes"]), dict[str, Any]()
    queries = sum(map(len, [given, questions.plain if questions.plain is not None else (), *questions.decoys]))
    if stated.codebook is not None:
        answers, drawn = given.reshape(len(labels), -1).numpy(), labels.numpy()
        counts = answer_counts(answers, None if true is None else true.numpy(), classes)
        trials = answers.size if true is None else int((true[None] != labels[:, None]).sum())
        found = findings.codebook_finding(counts, drawn, trials=trials, carriers=answers.shape[1])
        binding = _BINDING[stated.codebook["carriers"]]
        more = {**found.counts, "drawn": drawn.tolist(), "table": counts.tolist(), "binding": binding}
    elif questions.plain is not None and true is not None:
        # Held against the carriers' classes: other committed labels would hit by themselves.
        before, *others = [
            ask(images) != true for images in (questions.plain, *(one.images for one in questions.decoys))
        ]
        found = findings.paired_finding(before, given != true, others, alpha)
        more = dict(found.counts)
    elif stated.test == KEYED:  # a sample without a true class can hit with any answer
        free = None if true is None or stated.key["kind"] == "unrelated" else int((given != true).sum())
        found = findings.keyed_finding(int((given == labels).sum()), len(given), free, classes)
    else:
        decoys = [(int(one.hits(ask(one.images)).sum()), len(one)) for one in questions.decoys]
        found = findings.bounded_finding(int((given == labels).sum()), len(given), decoys, alpha)
    owned = found.p_value <= alpha
    said = "Derived from a model that carries the committed watermark"
    if not owned:
        said = "Not shown to be derived from the committed model"
    public = " The marks are the paper's public ones: this carries no weight against forgery."
    return {
        "test": stated.test, "alpha": alpha, "hits": found.hits, "trials": found.trials,
        "wsr": found.hits / found.trials if found.trials else 0.0, "decoy_rate": found.decoy_rate,
        "null_rate": found.null_rate, "p_value": found.p_value, "owned": owned, "queries": queries, **more,
        "sentence": f"{said}: {_SAYS[stated.test].format(found)}{public if stated.key['scheme'] == 'paper' else ''}",
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
