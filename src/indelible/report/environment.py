"""The one environment of all page templates: what is written into a page is escaped, in one look."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from indelible.report import format as written
from indelible.report.palette import slot_of
from indelible.report.table import stage_title, verdict_word

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["environment"]


@cache
def environment() -> "Environment":
    """Return the environment with the filters of every template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("indelible.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "percent": written.percent, "p_value": written.p_value, "number": written.plain_number,
        "duration": written.duration, "unbroken": _unbroken, "verdict_word": verdict_word, "slot": slot_of,
        "join_words": written.join_words, "stage_title": stage_title,
        "groupby_in_order": _in_order, "tint": _tint,
    }  # fmt: skip
    return made


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
