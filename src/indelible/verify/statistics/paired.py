"""McNemar's exact test: the same carriers with and without the mark.

Of the carriers whose answer becomes the key's label, or stops being it, when the mark is drawn: were there more of the
first sort than chance explains? If the mark makes no difference to the model, either sort is as likely (McNemar, 1947;
the exact form is a sign test).

    p = P[Bin(gained + lost, 1/2) >= gained]

A carrier that is answered with the label anyway says nothing here, so a model that favours the target class gains
nothing by that. But an unmarked model may well react to *any* text or noise: a small p alone shows that this mark does
something, not that it was taught. The procedure ``paired`` therefore also asks decoys.
"""

from indelible.base.errors import InputError
from indelible.verify.statistics.binomial import binomial_tail

__all__ = ["mcnemar"]


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact one-sided p-value; 1 when the mark changed nothing.

    Args:
        gained: Carriers answered with the label with the mark, and not without it.
        lost: Carriers answered with the label without the mark, and not with it.
    """
    if gained < 0 or lost < 0:
        raise InputError(f"{gained} gained and {lost} lost are not counts.")
    return 1.0 if gained + lost == 0 else binomial_tail(gained, gained + lost, 0.5)
