"""Choose where to measure: a square lattice, refined where rates change, and a walk to where a rate first falls.

Nodes of the lattice are pairs of whole numbers (i, j). Measuring starts with every ``stride``-th node. A cell whose
corners differ by more than a tolerance, in any quantity, is halved on both sides, until cells have side one. Nodes that
were never needed are filled bilinearly. A tolerance below zero measures every node.

A walk goes outwards in even steps until the watermark success rate (WSR) lies below a level, then halves the step in
which it happened. Between two measurements the rate is taken to be linear. A rate that dips and recovers counts at the
first dip that a step meets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from indelible.analyze.marked_model import Rates
from indelible.base.errors import InputError

LEVEL = 0.5

Node = tuple[int, int]
Cell = tuple[int, int, int, int]
"""First and last i, first and last j of a cell."""
Values = tuple[float, ...]
Measure = Callable[[Sequence[Node]], Mapping[Node, Values]]


def axis(low: float, high: float, steps: int) -> tuple[float, ...]:
    """Return ``steps`` evenly spaced values from about ``low`` to ``high``, moved so that one of them is exactly 0."""
    if not low <= 0.0 <= high or low == high or steps < 2:
        raise InputError(
            f"an axis needs at least 2 steps over a range that holds 0, got {steps} from {low:g} to {high:g}."
        )
    spacing = (high - low) / (steps - 1)
    first = round(low / spacing)
    # Twelve digits: 3 * 0.1 is to be written, and found again, as 0.3.
    return tuple(round((first + number) * spacing, 12) for number in range(steps))


def first_cells(steps: int, stride: int) -> list[Cell]:
    """Return cells of side ``stride`` that cover the lattice; the last of a row may be smaller."""
    if stride < 1:
        raise InputError(f"the stride must be at least 1, got {stride}.")
    spans = list(pairwise([*range(0, steps - 1, stride), steps - 1]))
    return [(*rows, *columns) for rows in spans for columns in spans]


def corners(cell: Cell) -> list[Node]:
    """Return the four corners of a cell."""
    top, bottom, left, right = cell
    return [(top, left), (top, right), (bottom, left), (bottom, right)]


def refined(cells: Sequence[Cell], measure: Measure, tolerance: float) -> tuple[dict[Node, Values], list[Cell]]:
    """Measure ``cells``, halve those whose corners differ by more than ``tolerance``; return values and whole cells."""
    known: dict[Node, Values] = {}
    settled: list[Cell] = []
    while cells:
        wanted = sorted({node for cell in cells for node in corners(cell)} - known.keys())
        known |= measure(wanted)
        smaller: list[Cell] = []
        for cell in cells:
            top, bottom, left, right = cell
            parts = [(*rows, *columns) for rows in _split(top, bottom) for columns in _split(left, right)]
            spread = max(max(each) - min(each) for each in zip(*(known[node] for node in corners(cell)), strict=True))
            if len(parts) > 1 and spread > tolerance:
                smaller += parts
            else:
                settled.append(cell)
        cells = smaller
    return known, settled


def _split(first: int, last: int) -> list[tuple[int, int]]:
    middle = (first + last) // 2
    return [(first, last)] if last - first < 2 else [(first, middle), (middle, last)]


def filled(known: Mapping[Node, Values], cells: Iterable[Cell]) -> dict[Node, Values]:
    """Return a value for every node: as measured where it was, bilinear between the corners of its cell elsewhere."""
    every: dict[Node, Values] = {}
    # Small cells know better than the large ones that they touch.
    for cell in sorted(cells, key=lambda cell: (cell[1] - cell[0]) * (cell[3] - cell[2]), reverse=True):
        top, bottom, left, right = cell
        ends = [known[node] for node in corners(cell)]
        for i in range(top, bottom + 1):
            down = (i - top) / max(bottom - top, 1)
            for j in range(left, right + 1):
                across = (j - left) / max(right - left, 1)
                shares = ((1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across)
                every[i, j] = tuple(
                    sum(share * value for share, value in zip(shares, values, strict=True))
                    for values in zip(*ends, strict=True)
                )
    return {**every, **known}


@dataclass(frozen=True, kw_only=True)
class FirstFall:
    """Where WSR first falls below a level."""

    level: float  # the level, a fraction
    distance: float | None  # relative distance of the first fall; None if it never fell up to `reach`
    ba: float | None  # accuracy just behind it: a mark that falls only with the model itself has not been removed
    reach: float  # how far was looked

    @property
    def at_least(self) -> float:
        """The distance that the mark certainly lasts, whether or not it fell."""
        return self.reach if self.distance is None else self.distance

    def __str__(self) -> str:
        if self.distance is None:
            return f"beyond {self.reach:.3g}"
        return f"{self.distance:.4f}" + ("" if self.ba is None else f" (BA {100 * self.ba:.1f} %)")


def crossing(near: tuple[float, float], far: tuple[float, float], level: float) -> float:
    """Return where the line between two (distance, rate) points meets ``level``; ``near`` is not below it."""
    (start, high), (end, low) = near, far
    return start if high == low else start + (high - level) / (high - low) * (end - start)


def first_fall(
    rates: Callable[[float], Rates], *, step: float, reach: float, level: float = LEVEL, halvings: int = 4
) -> FirstFall:
    """Walk along a direction, whose ``rates`` are measured at relative distances, to where WSR falls below ``level``.

    The walk goes in even steps up to ``reach``; the step in which WSR falls is halved ``halvings`` times.
    """
    if step <= 0 or reach < step:
        raise InputError(f"a walk needs a step above 0 and a reach of at least one step, got {step} and {reach}.")
    start = rates(0.0)
    if start.wsr < level:
        return FirstFall(level=level, distance=0.0, ba=start.ba, reach=reach)
    near, count = (0.0, start), round(reach / step)
    for number in range(1, count + 1):
        here = round(number * step, 12)
        found = rates(here)
        if found.wsr < level:
            break
        near = (here, found)
    else:
        return FirstFall(level=level, distance=None, ba=None, reach=near[0])
    far = (here, found)
    for _ in range(halvings):
        middle = round((near[0] + far[0]) / 2, 12)
        found = rates(middle)
        if found.wsr < level:
            far = (middle, found)
        else:
            near = (middle, found)
    distance = crossing((near[0], near[1].wsr), (far[0], far[1].wsr), level)
    return FirstFall(level=level, distance=distance, ba=far[1].ba, reach=round(count * step, 12))
