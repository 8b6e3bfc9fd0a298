"""The look of all pages, from ``look.toml``, and the environments of their templates."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.analyze.analysis import joint
from indelible.report import format as written

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LOOK = tomllib.loads(Path(__file__).with_name("look.toml").read_text(encoding="utf-8"))
LIGHT: Mapping[str, str] = LOOK["light"]
DARK: Mapping[str, str] = LOOK["dark"]
DIFFERENCES: Mapping[int, str] = {int(step): colour for step, colour in LOOK["differences"].items()}
_FILTERS = (
    "duration", "equation", "join_words", "latex_text", "markdown_text", "p_value", "percent", "rate", "stage_title",
    "verdict_word",
)  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """The look of one series: colour of the palettes, matplotlib marker, dashes in points, SVG path of the marker."""

    name: str
    marker: str
    dash: tuple[float, ...]
    path: str


SLOTS = tuple(Slot(**given) for given in LOOK["series"])


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
    made.filters |= {name: getattr(written, name) for name in _FILTERS}
    made.filters |= {
        "flattened": flattened, "number": written.plain_number, "repr": repr, "slot": slot_of, "unbroken": _unbroken,
    }  # fmt: skip
    made.globals |= {"light": LIGHT, "dark": DARK, "differences": DIFFERENCES, "joint": joint, "signs": written.SIGNS}
    return made


@cache
def text_environment() -> "Environment":
    """Return the environment of Markdown and LaTeX: nothing is escaped unasked, and braces are left to LaTeX."""
    return environment().overlay(
        autoescape=False, block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>", comment_start_string="<#", comment_end_string="#>",
    )  # fmt: skip


def filled_lines(template: str, **values: Any) -> list[str]:
    """Return the lines of a filled text template that are not empty."""
    return [line for line in text_environment().get_template(template).render(values).split("\n") if line]


def drawn_by(template: str, **values: Any) -> "Markup":
    """Return the ``<svg>`` that a template draws, to be put into a page; it needs no matplotlib."""
    from markupsafe import Markup

    return Markup(environment().get_template(template).render(values).strip())  # noqa: S704 - the template escapes


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
