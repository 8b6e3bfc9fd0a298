"""Drawings by matplotlib: for paper as PNG and SVG, and inline for a page in light and dark colours.

Sizes are in millimetres: 85 is a column of a two-column paper, 174 both. Matplotlib knows fixed colours only: for a
page, each colour of the palette is drawn as a sentinel and replaced in the SVG by the CSS variable of that name. Text
stays text (it can be selected and read aloud) and takes the page's font. No dates, a fixed salt: the same numbers give
the same bytes.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from indelible.report.page_look import LIGHT, LOOK, slot_of

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, BOTH = 85.0, 174.0
Ink = Mapping[str, str]
_SENTINELS: Ink = {name: f"#0f0e{number:02x}" for number, name in enumerate(LIGHT, start=1)}
_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_INCH = 25.4
_DPI = 220


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn in any colours."""

    width: float  # in millimetres
    height: float  # in millimetres
    plot: Callable[["Figure", Ink], None]  # draws into an empty figure, in the colours it is given
    alt: str  # the figure in words, for those who do not see it
    small: bool = True  # small type and margins as tight as they can be, for a column of print


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _drawn(drawing: Drawing, name: str, ink: Ink, **how: Any) -> bytes:
    """Draw, and return what matplotlib's ``savefig(**how)`` writes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    file = io.BytesIO()
    colours = {setting: ink[colour] for setting, colour in LOOK["matplotlib-colours"].items()}
    settings = {**LOOK["matplotlib"], **colours, **(LOOK["matplotlib-small"] if drawing.small else {})}
    settings["svg.hashsalt"] = f"indelible/{name}"  # ids can be repeated
    with mpl.rc_context(settings):
        figure = Figure(figsize=(drawing.width / _INCH, drawing.height / _INCH))
        drawing.plot(figure, ink)
        figure.savefig(file, **how)
    return file.getvalue()


def as_png(drawing: Drawing) -> bytes:
    """Return the figure as PNG on white, 220 dots an inch, in 256 colours: a third of the bytes, no visible loss."""
    from PIL import Image

    drawn = _drawn(drawing, "figure", LIGHT, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})
    small = io.BytesIO()
    Image.open(io.BytesIO(drawn)).convert("RGB").quantize(
        256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    ).save(small, format="PNG", optimize=True, dpi=(_DPI, _DPI))
    return small.getvalue()


def as_svg(drawing: Drawing) -> str:
    """Return the figure as an SVG file in light colours; text stays text."""
    return _drawn(drawing, "figure", LIGHT, format="svg", facecolor="white", metadata=_METADATA).decode()


def as_inline(drawing: Drawing, name: str) -> "Markup":
    """Return the figure as an ``<svg>`` element in the page's colours; ``name`` makes its ids unique on the page."""
    from markupsafe import Markup, escape

    drawn = _drawn(drawing, name, _SENTINELS, format="svg", transparent=True, metadata=_METADATA).decode()
    body = drawn[drawn.index("<svg") :]
    # Groups are numbered within their parents, so that two may share an id; only those that are referred to are kept.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", body)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    # Newer matplotlib writes font-family, older the short form.
    body = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", body)
    body = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font: \1px var(--sans)", body)
    for colour, sentinel in _SENTINELS.items():
        body = body.replace(sentinel, f"var(--{colour})")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    box = f"0 0 {72 * drawing.width / _INCH:g} {72 * drawing.height / _INCH:g}"
    opening = f'<svg role="img" aria-label="{escape(drawing.alt)}" viewBox="{box}" {spaces}>'
    # The SVG is ours; matplotlib escapes the labels in it, and its name is escaped in the line above.
    return Markup(re.sub(r"<svg[^>]*>", lambda _: opening, body, count=1).strip())  # noqa: S704


def percent_axis(axes: "Axes", label: str = "") -> None:
    """Give an axis of rates: 0 to 100 %, with lines."""
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel(label)


def series(
    axes: "Axes", xs: Sequence[float], ys: Sequence[float], number: int, ink: Ink, label: str | None = None,
    hollow: Sequence[int] = (),
) -> None:  # fmt: skip
    """Draw one line in the look of series ``number``, with its own colour, marker and dashes.

    The markers of the points ``hollow`` are empty. Where there are many, every few are enough to tell series apart.
    """
    slot = slot_of(number)
    (line,) = axes.plot(
        xs, ys, color=ink[slot.name], linestyle=(0, slot.dash) if slot.dash else "-", marker=slot.marker, label=label,
        markevery=max(1, len(xs) // 12), clip_on=False, solid_joinstyle="round",
    )  # fmt: skip
    if hollow:
        axes.plot(
            [xs[at] for at in hollow], [ys[at] for at in hollow], linestyle="none", marker=slot.marker,
            markeredgecolor=ink[slot.name], markerfacecolor=ink["ground"],
            markersize=1.2 * line.get_markersize(), clip_on=False, zorder=3,
        )  # fmt: skip


def literal(text: str) -> str:
    """Return a user's text so that matplotlib takes no dollar in it for mathematics."""
    return text.replace("$", r"\$")
