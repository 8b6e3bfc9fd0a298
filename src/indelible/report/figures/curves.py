"""Curves from benchmark records: WSR above, BA below, against what was varied; bars are one standard deviation."""

from typing import TYPE_CHECKING

from indelible.analyze.curves import Curves, Line, Mark
from indelible.report.figures.canvas import COLUMN, Drawing, Ink, legend, literal, percent_axis, series
from indelible.report.format import join_words
from indelible.report.palette import slot_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves_drawing"]

_AXES = {
    "eps": "ε, size of the perturbation relative to the weights", "target": "target class",
    "size": "size of the mark (1: the paper's)", "transparency": "transparency of the mark",
    "architecture": "architecture", "threshold": "pruning threshold of ANP", "t": "t on the path of MCR",
    "rate": "share of channels that FP prunes", "u": "deviations above the mean from which CLP or BNP prunes",
    "share": "share of weights that magnitude pruning drops", "weight_bits": "bits of a quantised weight",
    "sigma": "noise on the weights, relative to their size",
}  # fmt: skip


def curves_drawing(result: Curves) -> Drawing:
    """Return the figure of curves."""
    ends = [
        f"{line.label} at {100 * line.marks[-1].wsr:.1f} %" for line in result.lines if line.marks[-1].wsr is not None
    ]
    alt = f"WSR and BA against {_AXES[result.variable]}. WSR at the last value: {join_words(ends)}."

    def plot(figure: "Figure", ink: Ink) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.25, 1))
        named = list(dict.fromkeys(mark.x for line in result.lines for mark in line.marks))
        for axes, rate in ((above, "wsr"), (below, "ba")):
            for number, line in enumerate(result.lines):
                _line(axes, line, rate, number, named, ink)
            percent_axis(axes, f"{rate.upper()} in %")
        if any(mark.at is None for line in result.lines for mark in line.marks):
            below.set_xticks(range(len(named)), list(map(literal, named)))
        below.set_xlabel(_AXES[result.variable])
        legend(above, ink, loc="best")

    return Drawing(COLUMN, 92, plot, alt)


def _line(axes: "Axes", line: Line, rate: str, number: int, named: list[str], ink: Ink) -> None:
    def place(mark: Mark) -> float:
        return float(named.index(mark.x)) if mark.at is None else mark.at

    known = [mark for mark in line.marks if getattr(mark, rate) is not None]
    xs, ys = [place(mark) for mark in known], [100 * getattr(mark, rate) for mark in known]
    series(axes, xs, ys, number, ink, literal(line.label))
    colour = ink[slot_of(number).name]
    bars = [100 * (getattr(mark, f"{rate}_sd") or 0.0) for mark in known]
    if any(bars):
        axes.errorbar(xs, ys, bars, fmt="none", ecolor=colour, elinewidth=0.7, capsize=1.5)
    reported = [(place(mark), 100 * mark.reported_wsr) for mark in known if mark.reported_wsr is not None]
    if rate == "wsr" and reported:
        points = list(zip(*reported, strict=True))
        axes.plot(
            *points, linestyle="none", marker=slot_of(number).marker, markerfacecolor=ink["ground"],
            markeredgecolor=colour, markersize=5, zorder=1, label=literal(f"{line.label}, reported"),
        )  # fmt: skip
