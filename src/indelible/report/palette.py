"""Colours of the page, for light and dark grounds, and the looks of chart series.

Series follow the Okabe-Ito set, which colour-blind readers can tell apart, darkened for the light ground and lightened
for the dark one until each keeps at least 3:1 against it (text keeps 4.5:1; tests compute both). Every series also has
its own marker and dashes, so that a chart printed in grey can still be read.

Differences from the paper's numbers go from orange (lower) to blue (higher) in three steps each, a pair that stays two
colours under every kind of colour blindness; the sign is always written too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DARK", "DIFFERENCES", "LIGHT", "SLOTS", "Slot", "slot_of"]

LIGHT: Mapping[str, str] = {
    "ground": "#ffffff", "raised": "#f5f6f8", "ink": "#16191d", "muted": "#59616b", "line": "#d8dce2",
    "link": "#0b5cad", "good": "#0b6b4f", "warn": "#a33a00",
    "s0": "#b84a00", "s1": "#8a6100", "s2": "#0068a8", "s3": "#5f6770", "s4": "#007a58", "s5": "#a3417a",
    "lo1": "#fdeee1", "lo2": "#fbd3ac", "lo3": "#f5a862", "hi1": "#e4f0fb", "hi2": "#b6d7f4", "hi3": "#7fb8e8",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "ground": "#121518", "raised": "#1b1f24", "ink": "#e9ecef", "muted": "#a5adb6", "line": "#343a41",
    "link": "#7cc0f5", "good": "#4fd1a5", "warn": "#ff9d66",
    "s0": "#ff8f4d", "s1": "#e6bb33", "s2": "#5db8f0", "s3": "#a9b1ba", "s4": "#35c795", "s5": "#e59bc8",
    "lo1": "#35281d", "lo2": "#553718", "lo3": "#7d4a12", "hi1": "#1c2b39", "hi2": "#1c4160", "hi3": "#1b5a8c",
}  # fmt: skip

DIFFERENCES: Mapping[int, str] = {
    -3: "#a33a00", -2: "#9a5200", -1: "#7d6240", 1: "#4c6a86", 2: "#1f6aa5", 3: "#004a94",
}  # fmt: skip
"""Differences as text on white paper: step (negative for lower than reported) -> colour."""


@dataclass(frozen=True)
class Slot:
    """The look of one series.

    Attributes:
        name: Of its colour in the palettes.
        marker: For matplotlib.
        dash: Lengths of strokes and gaps in points; none for a solid line.
        path: The marker for the legend, as an SVG path around (0, 0).
    """

    name: str
    marker: str
    dash: tuple[float, ...]
    path: str


_CIRCLE = "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z"
_SQUARE = "M-3.2 -3.2h6.4v6.4h-6.4z"
_TRIANGLE = "M0 -4L4 3.4H-4z"
_DIAMOND = "M0 -4.4L4.4 0L0 4.4L-4.4 0z"
_DOWN = "M0 4L4 -3.4H-4z"
_PENTAGON = "M0 -4L3.8 -1.2L2.4 3.2H-2.4L-3.8 -1.2z"
SLOTS = (
    Slot("s0", "s", (5, 2), _SQUARE),
    Slot("s1", "^", (2, 1.5), _TRIANGLE),
    Slot("s2", "o", (), _CIRCLE),
    Slot("s3", "D", (1, 1.5), _DIAMOND),
    Slot("s4", "v", (7, 2, 1, 2), _DOWN),
    Slot("s5", "p", (9, 3), _PENTAGON),
)


def slot_of(number: int) -> Slot:
    """Return the look of series ``number``; a seventh series starts over."""
    return SLOTS[number % len(SLOTS)]
