"""Charts as inline SVG, in the page's colours and font; see :mod:`indelible.report.svg`."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indelible.report.curves import Chart, Panel
from indelible.report.palette import slot_of
from indelible.report.svg import METADATA, SENTINELS, can_draw, inlined, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["can_draw", "draw", "drawn"]

_WIDTH, _HEIGHT = 360 / 72, 250 / 72  # inches of 72 points, so that one point is one pixel of a 360-pixel phone
_EDGE = 6


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

    with mpl.rc_context(look(name, SENTINELS)):
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        FigureCanvasSVG(figure)
        # Fixed margins: the axes of charts side by side line up.
        axes = figure.add_axes((0.13, 0.17, 0.83, 0.78))
        _plot(axes, chart)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(METADATA))
    return inlined(file.getvalue(), chart.alt, name, (72 * _WIDTH, 72 * _HEIGHT))


def _plot(axes: "Axes", chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    last = max(point[0] for series in chart.series for point in series.points)
    first = min(point[0] for series in chart.series for point in series.points)
    for series in chart.series:
        slot = slot_of(series.look)
        colour = SENTINELS[slot.name]
        xs, ys = [epoch for epoch, _ in series.points], [value for _, value in series.points]
        # Markers show what was measured; where there are many, every few are enough to tell the series apart.
        axes.plot(
            xs, ys, color=colour, linestyle=(0, slot.dash) if slot.dash else "-", marker=slot.marker,
            markeredgecolor=colour, markerfacecolor=colour, markevery=max(1, len(series.points) // 12),
            clip_on=False, solid_joinstyle="round",
        )  # fmt: skip
        if series.hollow:
            axes.plot(
                [xs[at] for at in series.hollow], [ys[at] for at in series.hollow], linestyle="none",
                marker=slot.marker, markeredgecolor=colour, markerfacecolor=SENTINELS["ground"], markersize=6,
                clip_on=False, zorder=3,
            )  # fmt: skip
    whole = chart.over == "Epoch" or bool(chart.ticks)
    # A single measurement gets room on both sides, or its axis would show fractions of an epoch.
    margin = 0.03 * (max(last - first, 1) if whole else (last - first) or 1) if last > first else 0.5
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
