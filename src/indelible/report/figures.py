"""Figures of analyses: the same numbers as PNG and SVG at column width, and inline for the page in light and dark.

Figures of rates are here: against what was varied, and during an attack.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.analyze.analysis import Analysis
from indelible.analyze.benchmark_curves import Curves, Line
from indelible.analyze.dynamics import Dynamics
from indelible.base.errors import InputError
from indelible.base.files import write_bytes, write_text
from indelible.report.drawing import COLUMN, Drawing, Ink, as_png, as_svg, can_draw, literal, percent_axis, series
from indelible.report.model_figures import batchnorm_drawing, landscape_drawing, samples_drawing, tsne_drawing
from indelible.report.page_look import slot_of

if TYPE_CHECKING:
    from matplotlib import figure as mpl
    from matplotlib.axes import Axes

_TEXTS = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
_TRACKS = (0, 2, 4, 5, 1, 3)  # the first two are the farthest apart


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
