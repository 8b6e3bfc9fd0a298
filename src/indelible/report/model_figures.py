"""Figures of models: their neighbourhood, BatchNorm statistics and features; and what marks look like."""

import textwrap
from typing import TYPE_CHECKING

from indelible.analyze.batchnorm import Batchnorm, Channels
from indelible.analyze.landscape import Landscape, Plane
from indelible.analyze.mark_pictures import Samples
from indelible.analyze.tsne import FeaturePanel, Tsne
from indelible.report.drawing import BOTH, COLUMN, Drawing, Ink, literal, series
from indelible.report.page_look import SLOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MAP = "viridis"  # even in lightness, so that it reads in gray and for every kind of colour vision
_RED = "#d7301f"
_PATHS = {"adversarial": "relative distance along $d_{adv}$", "tuning": "iterations of fine-tuning"}
_SAMPLE_ROWS = {"kind": "kind", "size": "size", "transparency": "transparency", "mark": ""}
_LINE, _LONGEST = 6, 17


def landscape_drawing(result: Landscape) -> Drawing:
    """Return the figure of a landscape."""
    count = len(result.planes)
    width = COLUMN if count <= 2 else BOTH
    side = (width - 22) / max(count, 2)

    def plot(figure: "Figure", ink: Ink) -> None:
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


def batchnorm_drawing(result: Batchnorm) -> Drawing:
    """Return the figure of BatchNorm statistics."""
    count = len(result.models)

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


def _layers(axes: "Axes", result: Batchnorm, ink: Ink) -> None:
    for number, one in enumerate(result.models):
        places = list(range(1, len(one.layers) + 1))
        distances = [layer.distance for layer in one.layers]
        series(axes, places, distances, 2 * number % 6 + number // 3, ink, literal(one.label))
    axes.set_xlabel("BatchNorm layer")
    axes.set_ylabel("distance, relative\nto clean spread")
    axes.set_ylim(0, 1.25 * max(layer.distance for one in result.models for layer in one.layers))
    axes.locator_params(axis="x", integer=True)
    axes.legend(loc="upper center", ncols=len(result.models))


def tsne_drawing(result: Tsne) -> Drawing:
    """Return the figure of a t-SNE."""
    still = result.settings.path == "still"
    # Models without a path stand side by side; with one, each has its row.
    table = [[(row.label, row.panels[0]) for row in result.models]] if still else [
        [(row.label, panel) for panel in row.panels] for row in result.models
    ]  # fmt: skip
    columns = len(table[0])
    width = COLUMN if columns <= 2 else BOTH

    def plot(figure: "Figure", ink: Ink) -> None:
        grid = figure.subplots(len(table), columns, squeeze=False)
        for number, line in enumerate(table):
            span = _span([panel for _, panel in line])
            for column, (label, panel) in enumerate(line):
                axes = grid[number][column]
                _dots(axes, result, panel, ink, span)
                title = label if still else panel.title
                axes.set_title(f"{literal(title)}\nWSR {100 * panel.wsr:.0f} %")
                if column == 0 and not still:
                    axes.set_ylabel(literal(label), color=ink["ink"], fontweight="bold")
        classes = "  ".join(
            literal(f"{number}\N{NO-BREAK SPACE}{name}") for number, name in enumerate(result.classes[:20])
        )
        where = "" if still else f"{_PATHS[result.settings.path]};  "
        below = textwrap.wrap(f"{where}×  watermark;  {classes}", round(width * 0.78), break_long_words=False)
        figure.supxlabel("\n".join(below), fontsize="medium", color=ink["muted"])

    return Drawing(width, (width / columns + 7) * len(table) + (8 if columns > 2 else 14), plot, result.alt)


def _span(panels: list[FeaturePanel]) -> tuple[float, float, float, float]:
    """Return the limits that all panels of a row share."""
    xs, ys = zip(*(spot for panel in panels for spot in (*panel.clean, *panel.marked)), strict=True)
    edge = 0.05 * max(max(xs) - min(xs), max(ys) - min(ys), 1e-9)
    return min(xs) - edge, max(xs) + edge, min(ys) - edge, max(ys) + edge


def _dots(axes: "Axes", result: Tsne, panel: FeaturePanel, ink: Ink, span: tuple[float, float, float, float]) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.patheffects import withStroke

    left, right, low, high = span
    for label in sorted(set(result.labels)):
        spots = [spot for spot, of in zip(panel.clean, result.labels, strict=True) if of == label]
        # All dots of a class as one path, a tenth of the bytes of markers: short strokes with round ends.
        corners = [point for x, y in spots for point in ((x, y), (x + (right - left) / 500, y))]
        path = Path(corners, [Path.MOVETO, Path.LINETO] * len(spots))
        colour = ink[SLOTS[label % len(SLOTS)].name]
        axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=1.6, capstyle="round", snap=False))
        # The number names the class: ten colours that everybody can tell apart do not exist.
        x, y = (sorted(values)[len(values) // 2] for values in zip(*spots, strict=True))
        axes.text(
            x, y, str(label), ha="center", va="center", fontsize=6.5, fontweight="bold", zorder=4,
            path_effects=[withStroke(linewidth=1.6, foreground=ink["ground"])],
        )  # fmt: skip
    xs, ys = zip(*panel.marked, strict=True)
    axes.plot(xs, ys, "x", color=ink["ink"], markersize=2.4, markeredgewidth=0.7, zorder=3)
    axes.set(xlim=(left, right), ylim=(low, high), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=ink["line"])


def samples_drawing(result: Samples) -> Drawing:
    """Return the figure of marked images."""
    names, table = [], []
    for name in _SAMPLE_ROWS:
        row = [one for one in result.pictures if one.row == name]
        lines = [row[at : at + _LINE] for at in range(0, len(row), _LINE)]
        names += [name] * len(lines)
        table += lines
    columns = max(map(len, table))

    def plot(figure: "Figure", ink: Ink) -> None:
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
