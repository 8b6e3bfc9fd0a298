"""SVG that follows the page into light and dark.

Matplotlib knows fixed colours only. Each colour of the palette is drawn as a sentinel and replaced in the SVG text by
the CSS variable of that name. Text stays text (it can be selected and read aloud) and takes the page's font. No dates,
a fixed salt: the same numbers give the same bytes.
"""

import re
from collections.abc import Mapping
from typing import Any

from indelible.report.palette import LIGHT

__all__ = ["METADATA", "SENTINELS", "can_draw", "inlined", "look"]

SENTINELS: Mapping[str, str] = {name: f"#0f0e{number:02x}" for number, name in enumerate(LIGHT, start=1)}
METADATA = ("Creator", "Date", "Format", "Type")


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    return bool(mpl.__version__)


def look(name: str, colours: Mapping[str, str]) -> dict[Any, Any]:  # the names of all settings are a type of their own
    """Return matplotlib settings of the house, in ``colours``; ``name`` makes the ids of the SVG repeatable."""
    ink, muted, line = colours["ink"], colours["muted"], colours["line"]
    return {
        "svg.fonttype": "none", "svg.hashsalt": f"indelible/{name}", "font.family": "DejaVu Sans", "font.size": 11,
        "axes.edgecolor": line, "axes.labelcolor": muted, "text.color": ink, "xtick.color": line, "ytick.color": line,
        "xtick.labelcolor": muted, "ytick.labelcolor": muted, "grid.color": line, "grid.linewidth": 0.8,
        "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.linewidth": 1.0,
        "xtick.major.size": 3, "ytick.major.size": 0, "lines.linewidth": 2.0, "lines.markersize": 5,
        "lines.dash_capstyle": "butt", "lines.scale_dashes": False, "path.simplify": False,
        "axes.unicode_minus": True,
    }  # fmt: skip


def inlined(svg: str, alt: str, name: str, size: tuple[float, float]) -> str:
    """Cut the SVG out of its file, give it a name in words, unique ids, and the page's colours and font.

    Args:
        svg: What matplotlib wrote, in :data:`SENTINELS`.
        alt: The picture in words.
        name: Prefix of the ids; each picture of a page needs its own.
        size: Width and height in points.
    """
    from markupsafe import escape

    body = svg[svg.index("<svg") :]
    # Groups are numbered within their parents, so that two may share an id; only those that are referred to are kept.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", body)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    # Newer matplotlib writes font-family, older the short form.
    body = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", body)
    body = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font: \1px var(--sans)", body)
    for colour, sentinel in SENTINELS.items():
        body = body.replace(sentinel, f"var(--{colour})")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    opening = f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {size[0]:g} {size[1]:g}" {spaces}>'
    return re.sub(r"<svg[^>]*>", lambda _: opening, body, count=1).strip()
