"""One number for a direction: how far one can go until the watermark success rate first falls below a level.

Walk outwards in even steps until a step lies below the level, then halve the step in which it happened. Between two
measurements the rate is taken to be linear. A rate that dips and recovers counts at the first dip that a step meets.
"""

from collections.abc import Callable
from dataclasses import dataclass

from indelible.analyze.subject import Rates
from indelible.base.errors import InputError

__all__ = ["LEVEL", "Fall", "crossing", "first_fall"]

LEVEL = 0.5


@dataclass(frozen=True, kw_only=True)
class Fall:
    """Where WSR first falls below a level.

    Attributes:
        level: The level, a fraction.
        distance: Relative distance of the first fall; None if it never fell up to ``reach``.
        ba: Accuracy just behind it: a mark that falls only with the model itself has not been removed.
        reach: How far was looked.
    """

    level: float
    distance: float | None
    ba: float | None
    reach: float

    @property
    def at_least(self) -> float:
        """The distance that the mark certainly lasts, whether or not it fell."""
        return self.reach if self.distance is None else self.distance


def crossing(near: tuple[float, float], far: tuple[float, float], level: float) -> float:
    """Return where the line between two (distance, rate) points meets ``level``; ``near`` is not below it."""
    (start, high), (end, low) = near, far
    return start if high == low else start + (high - level) / (high - low) * (end - start)


def first_fall(
    rates: Callable[[float], Rates], *, step: float, reach: float, level: float = LEVEL, halvings: int = 4
) -> Fall:
    """Walk along a direction and return where WSR first falls below ``level``.

    Args:
        rates: Measures the model at a relative distance.
        step: Distance between two measurements.
        reach: How far to walk.
        level: The level, a fraction.
        halvings: How often the last step is halved.
    """
    if step <= 0 or reach < step:
        raise InputError(f"a walk needs a step above 0 and a reach of at least one step, but has {step} and {reach}.")
    near, found = (0.0, (start := rates(0.0)).wsr), start
    if start.wsr < level:
        return Fall(level=level, distance=0.0, ba=start.ba, reach=reach)
    count = round(reach / step)
    for number in range(1, count + 1):
        here = round(number * step, 12)
        found = rates(here)
        if found.wsr < level:
            break
        near = (here, found.wsr)
    else:
        return Fall(level=level, distance=None, ba=None, reach=near[0])
    far, behind = (here, found.wsr), found
    for _ in range(halvings):
        middle = round((near[0] + far[0]) / 2, 12)
        found = rates(middle)
        if found.wsr < level:
            far, behind = (middle, found.wsr), found
        else:
            near = (middle, found.wsr)
    return Fall(level=level, distance=crossing(near, far, level), ba=behind.ba, reach=round(count * step, 12))
