"""Figures of analyses: the same numbers as PNG and SVG at column width, and inline for the page in light and dark.

Those of models show their neighbourhood and BatchNorm statistics, and what marks look like; those of rates, what was
varied. Other packages add their own.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.analyze.analysis import Analysis
from indelible.analyze.batchnorm_distances import Batchnorm, Channels
from indelible.analyze.benchmark_curves import Curves, Line
from indelible.analyze.mark_pictures import Samples
from indelible.analyze.weight_landscape import Landscape, Plane
from indelible.base.errors import InputError
from indelible.base.files import write_bytes, write_text
from indelible.report.drawing import BOTH, COLUMN, Drawing, Ink, as_png, as_svg, can_draw, literal, percent_axis, series
from indelible.report.page_look import slot_of

if TYPE_CHECKING:
    from matplotlib import figure as mpl
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_TEXTS = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
_SAMPLE_ROWS = {"kind": "kind", "size": "size", "transparency": "transparency", "mark": ""}
_LINE, _LONGEST = 6, 17


def landscape_drawing(result: Landscape) -> Drawing:
    """Return the figure of a landscape."""
    count = len(result.planes)
    width = COLUMN if count <= 2 else BOTH
    side = (width - 22) / max(count, 2)

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        grid = figure.subplots(2, count, squeeze=False, sharex=True, sharey=True)
        for column, plane in enumerate(result.planes):
            for row, (name, values) in enumerate((("WSR", plane.wsr), ("BA", plane.ba))):
                image = _plane(grid[row][column], result, plane, values, ink)
                if row == 0:
                    grid[row][column].set_title(literal(plane.label))
                if column == 0:
                    grid[row][column].set_ylabel(f"{name}: distance along $d_{{FT}}$")
        figure.supxlabel("relative distance along $d_{adv}$", fontsize="medium", color=ink["muted"])
        bar = figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.85, aspect=32, pad=0.02)
        bar.set_label("rate in %", color=ink["muted"])
        bar.set_ticks([0, 25, 50, 75, 100])
        bar.outline.set_visible(False)

    return Drawing(width, 2 * side + 14, plot, result.alt)


def _plane(
    axes: "Axes", result: Landscape, plane: Plane, values: tuple[tuple[float, ...], ...], ink: Ink
) -> "AxesImage":
    first, second = result.settings.axes
    half_a, half_b = (first[1] - first[0]) / 2, (second[1] - second[0]) / 2
    shown = [[100 * value for value in row] for row in values]
    axes.grid(visible=False)
    # Viridis is even in lightness, so that it reads in gray and for every kind of colour vision.
    image = axes.imshow(
        shown, origin="lower", cmap="viridis", vmin=0, vmax=100, interpolation="none", aspect="auto",
        extent=(first[0] - half_a, first[-1] + half_a, second[0] - half_b, second[-1] + half_b),
    )  # fmt: skip
    if min(map(min, shown)) < 50 < max(map(max, shown)):
        axes.contour(first, second, shown, levels=[50], colors="white", linewidths=0.9, linestyles="dashed")
    axes.plot([0], [0], marker="o", color="black", markeredgecolor="white", markeredgewidth=0.7, markersize=5)
    axes.plot(
        [0], [min(plane.tuned, second[-1] + half_b)], marker="*", color="#d7301f", markeredgecolor="white",
        markeredgewidth=0.6, markersize=9, clip_on=False,
    )  # fmt: skip
    axes.locator_params(nbins=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(color=ink["line"])
    return image


def batchnorm_drawing(result: Batchnorm) -> Drawing:
    """Return the figure of BatchNorm statistics."""
    count = len(result.models)

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
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
        below = figure.add_subplot(grid[2, :])
        for number, one in enumerate(result.models):
            distances = [layer.distance for layer in one.layers]
            look = 2 * number % 6 + number // 3
            series(below, range(1, len(distances) + 1), distances, look, ink, literal(one.label))
        below.set(xlabel="BatchNorm layer", ylabel="distance, relative\nto clean spread")
        below.set_ylim(0, 1.25 * max(layer.distance for one in result.models for layer in one.layers))
        below.locator_params(axis="x", integer=True)
        below.legend(loc="upper center", ncols=count)
        # Outside the panels: there is no corner that no channel comes near.
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)

    return Drawing(COLUMN if count <= 2 else BOTH, 100, plot, result.alt)


def _channels(axes: "Axes", one: Channels, name: str, ink: Ink) -> None:
    order = sorted(range(len(one.clean_mean)), key=one.clean_mean.__getitem__)
    clean, marked = ([getattr(one, f"{kind}_{name}")[at] for at in order] for kind in ("clean", "marked"))
    places = range(len(order))
    axes.vlines(places, clean, marked, color=ink["line"], linewidth=0.7, zorder=1)
    axes.plot(places, clean, ".", color=ink["s2"], label="clean", markersize=3)
    axes.plot(places, marked, "x", color=ink["s0"], label="watermark", markersize=2.6, mew=0.8)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=4, integer=True)


def samples_drawing(result: Samples) -> Drawing:
    """Return the figure of marked images."""
    names, table = [], []
    for name in _SAMPLE_ROWS:
        row = [one for one in result.pictures if one.row == name]
        lines = [row[at : at + _LINE] for at in range(0, len(row), _LINE)]
        names += [name] * len(lines)
        table += lines
    columns = max(map(len, table))

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        grid = figure.subplots(len(table), columns, squeeze=False)
        for number, line in enumerate(table):
            for column in range(columns):
                axes = grid[number][column]
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set_visible(False)
                if column < len(line):
                    image = line[column].image().permute(1, 2, 0).numpy()
                    axes.imshow(
                        image[:, :, :3] if image.shape[2] >= 3 else image[:, :, 0], cmap="gray", vmin=0, vmax=255,
                        interpolation="none",
                    )  # fmt: skip
                    small = {"fontsize": 5.0} if names[number] == "mark" else {}  # room for a class's name
                    axes.set_title(literal(line[column].title[:_LONGEST]), fontweight="normal", **small)
                if column == 0:
                    axes.set_ylabel(_SAMPLE_ROWS[names[number]], color=ink["muted"])

    return Drawing(COLUMN, len(table) * (COLUMN / columns + 3) + 2, plot, result.alt)


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


@dataclass(frozen=True)
class Figure:
    """How an analysis is drawn, what a page calls it, and what a reader must know beside it."""

    drawing: Callable[[Any], Drawing]
    title: str
    note: str


_DRAWINGS: Mapping[str, Callable[[Any], Drawing]] = {
    "landscape": landscape_drawing,
    "batchnorm": batchnorm_drawing,
    "samples": samples_drawing,
    "curves": curves_drawing,
}
FIGURES = {name: Figure(draw, **_TEXTS["figures"][name]) for name, draw in _DRAWINGS.items()}
"""Name of an analysis -> its figure; another package adds its own."""


def figure_of(analysis: Analysis) -> Figure:
    """Return how an analysis is drawn."""
    if analysis.figure not in FIGURES:
        raise InputError(f"nobody has said how {analysis.figure!r} is drawn. Add it to FIGURES in {__name__}.")
    return FIGURES[analysis.figure]


def write_figure(analysis: Analysis, folder: str | Path) -> list[Path]:
    """Draw an analysis into ``folder`` as ``figure.png`` and ``figure.svg``; return their paths."""
    if not can_draw():
        raise InputError('figures need matplotlib. Run: pip install "indelible[plots]"')
    drawing, place = figure_of(analysis).drawing(analysis), Path(folder)
    write_bytes(place / "figure.png", as_png(drawing))
    write_text(place / "figure.svg", as_svg(drawing))
    return [place / "figure.png", place / "figure.svg"]
