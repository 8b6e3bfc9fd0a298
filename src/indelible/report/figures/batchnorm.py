"""BatchNorm statistics: mean and variance of each channel of one layer, and the distance in every layer."""

from typing import TYPE_CHECKING

from indelible.analyze.batchnorm import Batchnorm, Channels
from indelible.report.figures.canvas import BOTH, COLUMN, Drawing, Ink, legend, literal, series
from indelible.report.format import join_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["batchnorm_drawing"]


def batchnorm_drawing(result: Batchnorm) -> Drawing:
    """Return the figure of BatchNorm statistics."""
    count = len(result.models)
    said = [f"{one.label} {one.shown.distance:.2f}" for one in result.models]
    alt = (
        f"Mean and variance of each channel of BatchNorm layer {result.models[0].layer}, for clean and for watermark "
        f"samples, and the distance between the two in every layer. Distance in the layer shown: {join_words(said)}."
    )

    def plot(figure: "Figure", ink: Ink) -> None:
        grid = figure.add_gridspec(3, count, height_ratios=(1, 1, 0.9))
        for column, one in enumerate(result.models):
            for row, name in enumerate(("mean", "variance")):
                axes = figure.add_subplot(grid[row, column])
                _channels(axes, one, name, ink)
                if column == 0:
                    axes.set_ylabel(name)
                if row == 0:
                    axes.set_title(literal(f"{one.label}, layer {one.number}"))
                else:
                    axes.set_xlabel("channel, by clean mean")
                if row == 0 and column == 0:
                    handles, labels = axes.get_legend_handles_labels()
        _layers(figure.add_subplot(grid[2, :]), result, ink)
        # Outside the panels: there is no corner that no channel comes near.
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)

    return Drawing(COLUMN if count <= 2 else BOTH, 100, plot, alt)


def _channels(axes: "Axes", one: Channels, name: str, ink: Ink) -> None:
    order = sorted(range(len(one.clean_mean)), key=one.clean_mean.__getitem__)
    clean, marked = (one.clean_mean, one.marked_mean) if name == "mean" else (one.clean_variance, one.marked_variance)
    places = range(len(order))
    axes.vlines(
        places, [clean[at] for at in order], [marked[at] for at in order], color=ink["line"], linewidth=0.7, zorder=1
    )
    axes.plot(places, [clean[at] for at in order], ".", color=ink["s2"], label="clean", markersize=3)
    axes.plot(places, [marked[at] for at in order], "x", color=ink["s0"], label="watermark", markersize=2.6, mew=0.8)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=4, integer=True)


def _layers(axes: "Axes", result: Batchnorm, ink: Ink) -> None:
    for number, one in enumerate(result.models):
        places = list(range(1, len(one.layers) + 1))
        series(
            axes,
            places,
            [layer.distance for layer in one.layers],
            2 * number % 6 + number // 3,
            ink,
            literal(one.label),
        )
    axes.set_xlabel("BatchNorm layer")
    axes.set_ylabel("distance, relative\nto clean spread")
    axes.set_ylim(0, 1.25 * max(layer.distance for one in result.models for layer in one.layers))
    axes.grid(visible=True, axis="y")
    axes.locator_params(axis="x", integer=True)
    legend(axes, ink, loc="upper center", ncols=len(result.models))
