"""The one-number summary, on toys whose answers are known."""

import pytest

from indelible.analyze.fall import Fall, crossing, first_fall
from indelible.analyze.subject import Rates
from indelible.base.errors import InputError


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
    assert first_fall(lambda _: Rates(0.8, 0.9), step=0.1, reach=0.5) == Fall(
        level=0.5, distance=None, ba=None, reach=0.5
    )


def test_a_mark_that_is_not_there() -> None:
    assert first_fall(lambda _: Rates(0.8, 0.4), step=0.1, reach=0.5).distance == 0.0


def test_no_step_is_refused() -> None:
    with pytest.raises(InputError, match="step"):
        first_fall(lambda _: Rates(1, 1), step=0.0, reach=1.0)
