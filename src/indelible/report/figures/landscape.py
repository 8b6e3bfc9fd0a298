"""The landscape: WSR above, BA below, one column a model, one colour scale; black dot and red star as in the paper."""

from typing import TYPE_CHECKING

from indelible.analyze.landscape import Landscape, Plane
from indelible.report.figures.canvas import BOTH, COLUMN, Drawing, Ink, literal
from indelible.report.format import join_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["landscape_drawing"]

_MAP = "viridis"  # even in lightness, so that it reads in grey and for every kind of colour vision
_RED = "#d7301f"


def landscape_drawing(result: Landscape) -> Drawing:
    """Return the figure of a landscape."""
    count = len(result.planes)
    first, second = result.settings.axes
    width = COLUMN if count <= 2 else BOTH
    side = (width - 22) / max(count, 2)
    said = [
        f"{plane.label} keeps at least 50 % up to {plane.adv.at_least:.3g} and {plane.ft.at_least:.3g}"
        for plane in result.planes
    ]
    alt = (
        f"WSR and BA of models in the plane of the adversarial direction ({first[0]:g} to {first[-1]:g}) and of "
        f"fine-tuning ({second[0]:g} to {second[-1]:g}). Along the two directions, {join_words(said)}."
    )

    def plot(figure: "Figure", ink: Ink) -> None:
        grid = figure.subplots(2, count, squeeze=False, sharex=True, sharey=True)
        for column, plane in enumerate(result.planes):
            for row, (name, values) in enumerate((("WSR", plane.wsr), ("BA", plane.ba))):
                image = _panel(grid[row][column], result, plane, values, ink)
                if row == 0:
                    grid[row][column].set_title(literal(plane.label))
                if column == 0:
                    grid[row][column].set_ylabel(f"{name}: distance along $d_{{FT}}$")
        figure.supxlabel("relative distance along $d_{adv}$", fontsize="medium", color=ink["muted"])
        bar = figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.85, aspect=32, pad=0.02)
        bar.set_label("rate in %", color=ink["muted"])
        bar.set_ticks([0, 25, 50, 75, 100])
        bar.outline.set_visible(False)

    return Drawing(width, 2 * side + 14, plot, alt)


def _panel(
    axes: "Axes", result: Landscape, plane: Plane, values: tuple[tuple[float, ...], ...], ink: Ink
) -> "AxesImage":
    first, second = result.settings.axes
    half_a, half_b = (first[1] - first[0]) / 2, (second[1] - second[0]) / 2
    shown = [[100 * value for value in row] for row in values]
    image = axes.imshow(
        shown, origin="lower", cmap=_MAP, vmin=0, vmax=100, interpolation="none", aspect="auto",
        extent=(first[0] - half_a, first[-1] + half_a, second[0] - half_b, second[-1] + half_b),
    )  # fmt: skip
    if min(map(min, shown)) < 50 < max(map(max, shown)):
        axes.contour(first, second, shown, levels=[50], colors="white", linewidths=0.9, linestyles="dashed")
    axes.plot([0], [0], marker="o", color="black", markeredgecolor="white", markeredgewidth=0.7, markersize=5)
    star = min(plane.tuned, second[-1] + half_b)
    axes.plot(
        [0], [star], marker="*", color=_RED, markeredgecolor="white", markeredgewidth=0.6, markersize=9, clip_on=False
    )
    axes.locator_params(nbins=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(color=ink["line"])
    return image
