"""Charts as inline SVG that follows the page into light and dark.

Matplotlib knows fixed colours only. Each colour of the palette is drawn as a sentinel and replaced in the SVG text by
the CSS variable of that name. Text stays text (it can be selected and read aloud) and takes the page's font. No dates,
a fixed salt: the same numbers give the same bytes.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indelible.report.curves import Chart, Panel
from indelible.report.palette import LIGHT, slot_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["can_draw", "draw", "drawn"]

_WIDTH, _HEIGHT = 360 / 72, 250 / 72  # inches of 72 points, so that one point is one pixel of a 360-pixel phone
_SENTINELS = {name: f"#0f0e{number:02x}" for number, name in enumerate(LIGHT, start=1)}
_EDGE = 6


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    return bool(mpl.__version__)


def drawn(panels: Sequence[Panel], prefix: str = "c") -> list[Mapping[str, Any]]:
    """Draw the charts of some panels for the template ``panel.html.j2``; ids on a page start with ``prefix``."""
    from markupsafe import Markup

    return [
        {
            "panel": panel,
            # Markup: the SVG is ours, and the one text in it that is not (its name) was escaped when it was drawn.
            "charts": [
                (chart, Markup(draw(chart, f"{prefix}{row}{column}")))  # noqa: S704
                for column, chart in enumerate(panel.charts)
            ],
        }
        for row, panel in enumerate(panels)
    ]


def draw(chart: Chart, name: str) -> str:
    """Return ``chart`` as an ``<svg>`` element.

    Args:
        chart: What to show.
        name: Prefix of the element's ids; each chart of a page needs its own.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_rc(name)):
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        FigureCanvasSVG(figure)
        # Fixed margins: the axes of charts side by side line up.
        axes = figure.add_axes((0.13, 0.17, 0.83, 0.78))
        _plot(axes, chart)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    return _inline(file.getvalue(), chart, name)


_METADATA = ("Creator", "Date", "Format", "Type")


def _rc(name: str) -> dict[Any, Any]:  # the names of all settings are a type of their own, in recent versions only
    ink, muted, line = _SENTINELS["ink"], _SENTINELS["muted"], _SENTINELS["line"]
    return {
        "svg.fonttype": "none", "svg.hashsalt": f"indelible/{name}", "font.family": "DejaVu Sans", "font.size": 11,
        "axes.edgecolor": line, "axes.labelcolor": muted, "text.color": ink, "xtick.color": line, "ytick.color": line,
        "xtick.labelcolor": muted, "ytick.labelcolor": muted, "grid.color": line, "grid.linewidth": 0.8,
        "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.linewidth": 1.0,
        "xtick.major.size": 3, "ytick.major.size": 0, "lines.linewidth": 2.0, "lines.markersize": 5,
        "lines.dash_capstyle": "butt", "lines.scale_dashes": False, "path.simplify": False,
        "axes.unicode_minus": True,
    }  # fmt: skip


def _plot(axes: "Axes", chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    last = max(point[0] for series in chart.series for point in series.points)
    first = min(point[0] for series in chart.series for point in series.points)
    for series in chart.series:
        look = slot_of(series.look)
        colour = _SENTINELS[look.name]
        # Markers show what was measured; where there are many, every few are enough to tell the series apart.
        axes.plot(
            [epoch for epoch, _ in series.points], [value for _, value in series.points],
            color=colour, linestyle=(0, look.dash) if look.dash else "-", marker=look.marker,
            markeredgecolor=colour, markerfacecolor=colour, markevery=max(1, len(series.points) // 12),
            clip_on=False, solid_joinstyle="round",
        )  # fmt: skip
    whole = chart.over == "Epoch" or bool(chart.ticks)
    margin = 0.03 * (max(last - first, 1) if whole else (last - first) or 1)
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=_EDGE, integer=whole))
    axes.set_xlabel(chart.over)
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    if chart.unit == "%":
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 25, 50, 75, 100])
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def _inline(svg: str, chart: Chart, name: str) -> str:
    """Cut the SVG out of its file, give it a name in words, unique ids, and the page's colours and font."""
    from markupsafe import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    # Newer matplotlib writes font-family, older the short form.
    body = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", body)
    body = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font: \1px var(--sans)", body)
    for colour, sentinel in _SENTINELS.items():
        body = body.replace(sentinel, f"var(--{colour})")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    opening = f'<svg role="img" aria-label="{escape(chart.alt)}" viewBox="0 0 360 250" {spaces}>'
    return re.sub(r"<svg[^>]*>", lambda _: opening, body, count=1).strip()
