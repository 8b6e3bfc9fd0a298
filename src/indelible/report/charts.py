"""Charts of a page: rates over epochs, strengths or attacks, as inline SVG in the page's colours and font.

A :class:`Chart` is plain numbers; :func:`draw` draws it with matplotlib. A template draws a :func:`sparkline`, since a
page may hold hundreds of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indelible.report.drawing import Drawing, Ink, as_inline, percent_axis
from indelible.report.drawing import series as draw_series
from indelible.report.format import join_words
from indelible.report.page_look import drawn_by, slot_of

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOLLOW = "Hollow markers of WSR: the verdict does not show ownership there."
Point = tuple[float, float]
_WIDTH, _HEIGHT = 360 * 25.4 / 72, 250 * 25.4 / 72  # 360 points, so that one is one pixel of a 360-pixel phone
_EDGE = 6
_RATES = (("wsr", "WSR"), ("ba", "BA"), ("accuracy", "held-out accuracy"))
_LOOKS = {"WSR": 2, "BA": 0, "held-out accuracy": 3}


@dataclass(frozen=True)
class Series:
    """One curve: its label, the number of its look, and (epoch or strength, value) points; rates in per cent.

    ``hollow`` are the numbers of the points at which a verdict did not show ownership.
    """

    label: str
    look: int
    points: tuple[Point, ...]
    hollow: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One quantity over epochs, or some rates over the strength of an attack."""

    title: str  # the quantity in words
    unit: str  # `"%"` or `"nats"`
    series: tuple[Series, ...]  # the curves
    when: str  # what was going on: "embedding", "FT"
    over: str = "Epoch"  # what the horizontal axis shows: "Epoch", or what an attack varies
    ticks: tuple[str, ...] = ()  # names of the positions 0, 1, ... on it, when it shows names.
    note: str = ""  # what a reader must know beside the title: a WSR's verdicts

    @property
    def alt(self) -> str:
        """The chart in words, for those who do not see it."""
        if self.ticks:
            labels = join_words([series.label for series in self.series])
            return f"{self.title}: {self.when} of {labels} at {join_words(self.ticks)}. The table has the numbers."
        digits = 1 if self.unit == "%" else 3
        ends = [f"{series.label} at {series.points[-1][1]:.{digits}f} {self.unit}" for series in self.series]
        axis = "epochs" if self.over == "Epoch" else self.over.lower()
        return f"{self.title} over the {axis} of {self.when}. At the end: {join_words(ends)}."


@dataclass(frozen=True)
class Panel:
    """The charts of one stage, which looks they use - (label, number) - and what a reader must know beside them."""

    title: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, int], ...]
    note: str = ""

    @classmethod
    def of(cls, title: str, charts: Sequence[Chart], hollow: str = HOLLOW) -> "Panel":
        """Return a panel whose legend names every series; ``hollow`` is its note where markers are."""
        series = [one for chart in charts for one in chart.series]
        legend = {one.label: one.look for one in series}
        return cls(title, tuple(charts), tuple(legend.items()), hollow if any(one.hollow for one in series) else "")


def drawn(panels: Sequence[Panel], prefix: str = "c") -> list[Mapping[str, Any]]:
    """Draw the charts of some panels for the template ``panel.html.j2``; ids on a page start with ``prefix``."""
    return [
        {
            "panel": panel,
            "charts": [(chart, draw(chart, f"{prefix}{row}{column}")) for column, chart in enumerate(panel.charts)],
        }
        for row, panel in enumerate(panels)
    ]


def draw(chart: Chart, name: str) -> "Markup":
    """Return ``chart`` as an ``<svg>`` element; ``name`` is the prefix of its ids."""

    def plot(figure: "Figure", ink: Ink) -> None:
        # Fixed margins: the axes of charts side by side line up.
        _plot(figure.add_axes((0.13, 0.17, 0.83, 0.78)), chart, ink)

    return as_inline(Drawing(_WIDTH, _HEIGHT, plot, chart.alt, small=False), name)


def _plot(axes: "Axes", chart: Chart, ink: Ink) -> None:
    from matplotlib.ticker import MaxNLocator

    places = [point[0] for series in chart.series for point in series.points]
    first, last = min(places), max(places)
    for series in chart.series:
        xs, ys = zip(*series.points, strict=True)
        draw_series(axes, xs, ys, series.look, ink, hollow=series.hollow)
    whole = chart.over == "Epoch" or bool(chart.ticks)
    # A single measurement gets room on both sides, or its axis would show fractions of an epoch.
    margin = 0.03 * (max(last - first, 1) if whole else (last - first) or 1) if last > first else 0.5
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=_EDGE, integer=whole))
    axes.set_xlabel(chart.over)
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    if chart.unit == "%":
        percent_axis(axes)
        return
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def sparkline(curve: Any) -> "Markup | None":
    """Return the curve (``name``, ``chosen``, ``rows``) as ``<svg>``; None if there is nothing to draw."""
    rows = curve.get("rows") if isinstance(curve, Mapping) else None
    known = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, Sequence) else []
    lines = {title: points for rate, title in _RATES if (points := _points(known, rate))}
    if not lines:
        return None
    xs = [x for points in lines.values() for x, _ in points]
    low, high = min(xs), max(xs)
    name, chosen = str(curve.get("name", "")), curve.get("chosen")
    ends = [f"{title} from {points[0][1]:.1f} to {points[-1][1]:.1f} %" for title, points in lines.items()]

    def place(point: Point) -> str:
        across = (point[0] - low) / (high - low) if high > low else 0.5
        return f"{30 + 282 * across:.1f} {112 - 1.04 * point[1]:.1f}"

    inside = isinstance(chosen, int | float) and low <= chosen <= high and high > low
    return drawn_by(
        "sparkline.svg.j2", alt=f"{join_words(ends)} over {name} {low:g} to {high:g}", name=name, low=f"{low:g}",
        high=f"{high:g}", chosen=place((chosen, 100.0)) if inside else None,
        lines=[(title, slot_of(_LOOKS[title]), [*map(place, points)]) for title, points in lines.items()],
    )  # fmt: skip


def _points(rows: Sequence[Mapping[str, Any]], rate: str) -> list[Point]:
    """Return the points of a rate, in per cent; what is not a number is left out."""
    found = [(row.get("value"), row.get(rate)) for row in rows]
    return [
        (float(x), 100.0 * min(max(float(y), 0.0), 1.0))
        for x, y in found
        if isinstance(x, int | float) and isinstance(y, int | float)
    ]
