"""Figures of analyses: the same numbers as PNG and SVG at column width, and inline for the page in light and dark.

Figures of rates are here: against what was varied, during an attack, and against what a method costs.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.analyze.analysis import Analysis
from indelible.analyze.benchmark_curves import Curves, Frontier, Line
from indelible.analyze.dynamics import Dynamics
from indelible.base.errors import InputError
from indelible.base.files import write_bytes, write_text
from indelible.report.drawing import COLUMN, Drawing, Ink, as_png, as_svg, can_draw, literal, percent_axis, series
from indelible.report.format import verdict_sign
from indelible.report.model_figures import batchnorm_drawing, landscape_drawing, samples_drawing, tsne_drawing
from indelible.report.page_look import slot_of

if TYPE_CHECKING:
    from matplotlib import figure as mpl
    from matplotlib.axes import Axes

_TEXTS = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
_TRACKS = (0, 2, 4, 5, 1, 3)  # the first two are the farthest apart
_ASIDE = 0.04
_APP, _OTHER = 2, 0  # looks: APP's in every figure, and Vanilla's
_VANILLA, _CONTROL = "Vanilla", "control, eps 0"


def curves_drawing(result: Curves) -> Drawing:
    """Return the figure of curves."""

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.25, 1))
        for axes, rate in ((above, "wsr"), (below, "ba")):
            for number, line in enumerate(result.lines):
                _line(axes, line, rate, number, ink)
            percent_axis(axes, f"{rate.upper()} in %")
        below.set_xlabel(result.axis)
        above.legend()

    return Drawing(COLUMN, 92, plot, result.alt)


def _line(axes: "Axes", line: Line, rate: str, number: int, ink: Ink) -> None:
    known = [mark for mark in line.marks if getattr(mark, rate) is not None]
    xs: list[Any] = [literal(mark.x) if mark.at is None else mark.at for mark in known]
    ys = [100 * getattr(mark, rate) for mark in known]
    lost = [at for at, mark in enumerate(known) if rate == "wsr" and mark.owned < mark.verdicts]
    series(axes, xs, ys, number, ink, literal(line.label), hollow=lost)
    colour = ink[slot_of(number).name]
    bars = [100 * (getattr(mark, f"{rate}_sd") or 0.0) for mark in known]
    if any(bars):
        axes.errorbar(xs, ys, bars, fmt="none", ecolor=colour, elinewidth=0.7, capsize=1.5)
    reported = [
        (x, 100 * mark.reported_wsr) for x, mark in zip(xs, known, strict=True) if mark.reported_wsr is not None
    ]
    if reported and rate == "wsr":
        axes.plot(
            *zip(*reported, strict=True), linestyle="none", marker="x", color=colour, markersize=5,
            label=literal(f"{line.label}, reported"),
        )  # fmt: skip


def dynamics_drawing(result: Dynamics) -> Drawing:
    """Return the figure of WSR and BA during an attack."""

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1.3, 1, 0.9))
        lost = [track.lost for track in result.tracks if track.lost is not None]
        for axes, name, scale in ((top, "wsr", 100), (middle, "ba", 100), (bottom, "distance", 1)):
            for number, track in enumerate(result.tracks):
                steps = [one.step for one in track.moments]
                values = [scale * getattr(one, name) for one in track.moments]
                series(axes, steps, values, _TRACKS[number % len(_TRACKS)], ink, literal(track.label))
            if lost:
                axes.plot(
                    [one.step for one in lost], [scale * getattr(one, name) for one in lost], marker="o", markersize=8,
                    markerfacecolor="none", markeredgecolor=ink["ink"], markeredgewidth=1.0, clip_on=False,
                    linestyle="none", label=f"verdict stops holding (α = {result.settings.alpha:g})",
                )  # fmt: skip
        percent_axis(top, "WSR in %")
        percent_axis(middle, "BA in %")
        bottom.set(ylabel="relative distance", xlabel=f"steps of {result.settings.attack.upper()}")
        bottom.set_ylim(bottom=0)
        figure.align_ylabels([top, middle, bottom])
        top.legend()

    return Drawing(COLUMN, 105, plot, result.alt)


def frontier_drawing(result: Frontier) -> Drawing:
    """Return the figure of cost against robustness."""

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
        for axes, rate in ((above, "wsr"), (below, "ba")):
            _spots(axes, result, rate, ink)
        best = result.best()
        if len(best) > 1:
            above.plot(
                [spot.cost for spot in best], [100 * spot.wsr for spot in best], color=ink[slot_of(_APP).name],
                linewidth=0.8, zorder=1, label="no cheaper variant keeps more",
            )  # fmt: skip
        percent_axis(above, f"WSR in % after {literal(result.attack.upper())}")
        below.set_ylabel("BA in %")
        low, high = below.get_ylim()
        below.set_ylim(low - 0.35 * (high - low), high)  # room for the names
        below.set_xlabel("image passes relative to plain training")
        figure.align_ylabels([above, below])
        above.legend()

    return Drawing(COLUMN, 100, plot, result.alt)


def _spots(axes: "Axes", result: Frontier, rate: str, ink: Ink) -> None:
    known = {spot.label: number for number, spot in enumerate(result.spots)}
    # Only APP and its controls cost more than plain training.
    sorts = ["APP" if one.perturbed else _CONTROL if one.cost > 1.0 else _VANILLA for one in result.spots]
    for number, (spot, sort) in enumerate(zip(result.spots, sorts, strict=True)):
        look = slot_of(_OTHER if sort == _VANILLA else _APP)
        colour, named = ink[look.name], sort != _CONTROL
        value, place = 100 * getattr(spot, rate), _place(result, number)
        lowest = value
        if rate == "wsr":
            lowest = 100 * spot.low
            axes.plot([place] * 2, [lowest, 100 * spot.high], color=colour, linewidth=0.7)
        axes.plot(
            [place], [value], linestyle="none", marker=look.marker, markersize=5, clip_on=False, color=colour,
            markerfacecolor=colour if named else ink["ground"],
            label=sort if sort not in sorts[:number] else None,  # each sort stands in the legend once
        )  # fmt: skip
        if spot.control is not None:
            other = known[spot.control]
            axes.plot(
                [place, _place(result, other)], [value, 100 * getattr(result.spots[other], rate)], color=ink["ink"],
                linewidth=0.5, linestyle=":", zorder=0,
            )  # fmt: skip
        sign = verdict_sign([True] * spot.owned + [False] * (spot.verdicts - spot.owned))
        if named:
            axes.annotate(
                literal(f"{spot.label} {sign}" if rate == "wsr" else spot.label), (place, lowest), xytext=(0, -5),
                textcoords="offset points", fontsize=6, rotation=90, ha="center", va="top",
            )  # fmt: skip
        elif rate == "wsr":
            axes.annotate(sign, (place, value), xytext=(5, -2), textcoords="offset points", fontsize=6)


def _place(result: Frontier, number: int) -> float:
    """Return where a spot stands: at its cost; several of one cost stand side by side around it."""
    cost = result.spots[number].cost
    alike = [other for other, spot in enumerate(result.spots) if spot.cost == cost]
    return cost + _ASIDE * (alike.index(number) - (len(alike) - 1) / 2)


@dataclass(frozen=True)
class Figure:
    """How an analysis is drawn, what a page calls it, and what a reader must know beside it."""

    drawing: Callable[[Any], Drawing]
    title: str
    note: str


_DRAWINGS: Mapping[str, Callable[[Any], Drawing]] = {
    "landscape": landscape_drawing,
    "batchnorm": batchnorm_drawing,
    "tsne": tsne_drawing,
    "samples": samples_drawing,
    "curves": curves_drawing,
    "dynamics": dynamics_drawing,
    "frontier": frontier_drawing,
}
FIGURES = {name: Figure(draw, **_TEXTS["figures"][name]) for name, draw in _DRAWINGS.items()}
"""Name of an analysis -> its figure."""


def write_figure(analysis: Analysis, folder: str | Path) -> list[Path]:
    """Draw an analysis into ``folder`` as ``figure.png`` and ``figure.svg``; return their paths."""
    if not can_draw():
        raise InputError('figures need matplotlib. Run: pip install "indelible[plots]"')
    drawing, place = FIGURES[analysis.figure].drawing(analysis), Path(folder)
    write_bytes(place / "figure.png", as_png(drawing))
    write_text(place / "figure.svg", as_svg(drawing))
    return [place / "figure.png", place / "figure.svg"]
