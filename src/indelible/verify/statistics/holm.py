"""Holm's correction: several keys or several suspects, one error rate for all of them together.

Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979. With p_(1) <= ... <= p_(m),

    adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j))

The chance of even one false claim among the m is at most alpha when adjusted p-values are held against alpha, whatever
the dependence between them. It is never weaker than multiplying every p-value by m.
"""

from collections.abc import Sequence

from indelible.base.errors import InputError

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values, in the order that they came in."""
    if any(not 0.0 <= value <= 1.0 for value in p_values):
        raise InputError(f"p-values lie in [0, 1], but {list(p_values)} came.")
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, running = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = running
    return adjusted
