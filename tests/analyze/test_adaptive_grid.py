"""The lattice: axes, refinement and filling, by hand; the first fall, on toys whose answers are known."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from indelible.analyze.adaptive_grid import (
    FirstFall,
    Node,
    axis,
    crossing,
    filled,
    first_cells,
    first_fall,
    refined,
)
from indelible.analyze.marked_model import Rates
from indelible.base.errors import InputError


def test_an_axis_holds_zero_exactly() -> None:
    assert axis(-0.02, 0.06, 5) == (-0.02, 0.0, 0.02, 0.04, 0.06)
    moved = axis(-0.05, 0.25, 21)
    assert moved.count(0.0) == 1
    assert len(moved) == 21
    assert all(round(b - a, 9) == 0.015 for a, b in pairwise(moved))
    with pytest.raises(InputError, match="holds 0"):
        axis(0.1, 0.2, 5)


def test_cells_cover_the_lattice() -> None:
    assert first_cells(5, 4) == [(0, 4, 0, 4)]
    assert first_cells(6, 4) == [(0, 4, 0, 4), (0, 4, 4, 5), (4, 5, 0, 4), (4, 5, 4, 5)]
    with pytest.raises(InputError, match="stride"):
        first_cells(5, 0)


class Field:
    """A step at j = 3: zero before it, one from there on; counts what is asked."""

    def __init__(self) -> None:
        self.asked: list[Node] = []
        self.rounds = 0

    def __call__(self, nodes: Sequence[Node]) -> Mapping[Node, tuple[float]]:
        self.asked += nodes
        self.rounds += 1
        return {(i, j): (float(j >= 3),) for i, j in nodes}


def test_only_where_it_changes() -> None:
    """9 x 9 from cells of side 4: the left half changes and is measured at every column, the right half stays whole."""
    field = Field()
    known, cells = refined(first_cells(9, 4), field, 0.5)
    assert len(field.asked) == len(set(field.asked)) == len(known)
    # Corners: 9. Halved left cells: rows 0, 2, 4, 6, 8 at columns 0, 2, 4. Then columns 2, 3, 4 in every row.
    wanted = {(i, j) for i in (0, 4, 8) for j in (0, 4, 8)} | {(i, j) for i in range(0, 9, 2) for j in (0, 2, 4)}
    wanted |= {(i, j) for i in range(9) for j in (2, 3, 4)}
    assert set(known) == wanted
    assert field.rounds == 3
    every = filled(known, cells)
    assert len(every) == 81
    assert all(every[i, j] == (float(j >= 3),) for i in range(9) for j in range(9))


def test_below_zero_measures_every_node() -> None:
    field = Field()
    known, _ = refined(first_cells(7, 4), field, -1.0)
    assert len(known) == 49


def test_filling_is_bilinear() -> None:
    known = {(0, 0): (0.0,), (0, 2): (2.0,), (2, 0): (4.0,), (2, 2): (6.0,)}
    every = filled(known, [(0, 2, 0, 2)])
    assert every[1, 1] == (3.0,)
    assert every[0, 1] == (1.0,)
    assert every[2, 1] == (5.0,)


def test_crossing_by_hand() -> None:
    assert crossing((0.1, 0.9), (0.2, 0.4), 0.5) == pytest.approx(0.18)
    assert crossing((0.1, 0.5), (0.2, 0.5), 0.5) == 0.1


def test_a_straight_fall_is_found_exactly() -> None:
    """WSR 1 - 4 d meets 50 % at 0.125, whatever the steps; BA there is 1 - d of the first point behind it."""
    seen: list[float] = []

    def rates(distance: float) -> Rates:
        seen.append(distance)
        return Rates(1 - distance, 1 - 4 * distance)

    fall = first_fall(rates, step=0.1, reach=1.0, halvings=2)
    assert fall.distance == pytest.approx(0.125)
    assert seen == pytest.approx([0.0, 0.1, 0.2, 0.15, 0.125])
    assert fall.ba == pytest.approx(0.85)
    assert fall.at_least == fall.distance


def test_the_first_dip_counts() -> None:
    levels = {0.0: 1.0, 0.1: 0.3, 0.2: 0.9, 0.3: 0.1}
    fall = first_fall(lambda at: Rates(0.8, levels[at]), step=0.1, reach=0.3, halvings=0)
    assert fall.distance == pytest.approx(0.1 * 0.5 / 0.7)


def test_a_mark_that_never_falls() -> None:
    assert first_fall(lambda _: Rates(0.8, 0.9), step=0.1, reach=0.5) == FirstFall(
        level=0.5, distance=None, ba=None, reach=0.5
    )


def test_a_mark_that_is_not_there() -> None:
    assert first_fall(lambda _: Rates(0.8, 0.4), step=0.1, reach=0.5).distance == 0.0


def test_no_step_is_refused() -> None:
    with pytest.raises(InputError, match="step"):
        first_fall(lambda _: Rates(1, 1), step=0.0, reach=1.0)
