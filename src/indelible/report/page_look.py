"""The look of all pages: colours for light and dark grounds, the looks of chart series, the environment of templates.

Series follow the Okabe-Ito set, which colour-blind readers can tell apart, darkened for the light ground and lightened
for the dark one until each keeps at least 3:1 against it (text keeps 4.5:1; tests compute both). Every series also has
its own marker and dashes, so that a chart printed in gray can still be read.

Differences from the paper's numbers go from orange (lower) to blue (higher) in three steps each, a pair that stays two
colours under every kind of colour blindness; the sign is always written too.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from indelible.report import format as written

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

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
    """The look of one series: colour of the palettes, matplotlib marker, dashes in points, SVG path of the marker."""

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


@cache
def environment() -> "Environment":
    """Return the environment with the filters of every template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("indelible.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "percent": written.percent, "p_value": written.p_value, "equation": written.equation,
        "number": written.plain_number,
        "duration": written.duration, "unbroken": _unbroken, "verdict_word": written.verdict_word, "slot": slot_of,
        "join_words": written.join_words, "stage_title": written.stage_title,
        "groupby_in_order": _in_order, "tint": _tint, "rate": written.rate,
    }  # fmt: skip
    made.globals |= {"light": LIGHT, "dark": DARK}
    return made


def drawn_by(template: str, **values: Any) -> "Markup":
    """Return the ``<svg>`` that a template draws, to be put into a page; it needs no matplotlib."""
    from markupsafe import Markup

    return Markup(environment().get_template(template).render(values))  # noqa: S704 - the template escapes


def _in_order(items: Iterable[Any], attribute: str) -> list[tuple[Any, list[Any]]]:
    """Group neighbours that agree in an attribute; Jinja's own filter would sort them."""
    return [(value, list(members)) for value, members in groupby(items, key=attrgetter(attribute))]


def _tint(step: int) -> str:
    """Return the class of a difference's colour, with a space before it; empty for none."""
    return f" {'hi' if step > 0 else 'lo'}{abs(step)}" if step else ""


def _unbroken(text: str) -> "Markup":
    """Keep p-values and c-BN on one line: a browser would break them at the hyphen."""
    from markupsafe import Markup, escape

    marked = re.sub(r"p (?:=|&lt;) [\d.e-]*\d|\d+e-\d+|c-BN", r'<span class="unbroken">\g<0></span>', str(escape(text)))
    return Markup(marked)  # noqa: S704 - escaped in the line above


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as (dotted name, value) pairs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
