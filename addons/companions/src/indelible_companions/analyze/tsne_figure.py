"""The figure of a t-SNE: clean images as dots of their class, watermark samples as crosses."""

import textwrap
from typing import TYPE_CHECKING

from indelible.report.drawing import BOTH, COLUMN, Drawing, Ink, literal
from indelible.report.page_look import SLOTS

if TYPE_CHECKING:
    from matplotlib import figure as mpl
    from matplotlib.axes import Axes

    from indelible_companions.analyze.tsne import FeaturePanel, Tsne

_PATHS = {"adversarial": "relative distance along $d_{adv}$", "tuning": "iterations of fine-tuning"}


def tsne_drawing(result: "Tsne") -> Drawing:
    """Return the figure of a t-SNE."""
    still = result.settings.path == "still"
    # Models without a path stand side by side; with one, each has its row.
    table = [[(row.label, row.panels[0]) for row in result.models]] if still else [
        [(row.label, panel) for panel in row.panels] for row in result.models
    ]  # fmt: skip
    columns = len(table[0])
    width = COLUMN if columns <= 2 else BOTH

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        grid = figure.subplots(len(table), columns, squeeze=False)
        for number, line in enumerate(table):
            # All panels of a row share their limits.
            spots = [spot for _, panel in line for spot in (*panel.clean, *panel.marked)]
            (left, right), (low, high) = ((min(values), max(values)) for values in zip(*spots, strict=True))
            edge = 0.05 * max(right - left, high - low, 1e-9)
            for column, (label, panel) in enumerate(line):
                axes = grid[number][column]
                axes.set(xlim=(left - edge, right + edge), ylim=(low - edge, high + edge), xticks=[], yticks=[])
                _dots(axes, result, panel, ink, (right - left + 2 * edge) / 500)
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


def _dots(axes: "Axes", result: "Tsne", panel: "FeaturePanel", ink: Ink, stroke: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.patheffects import withStroke

    for label in sorted(set(result.labels)):
        spots = [spot for spot, of in zip(panel.clean, result.labels, strict=True) if of == label]
        # All dots of a class as one path, a tenth of the bytes of markers: short strokes with round ends.
        corners = [point for x, y in spots for point in ((x, y), (x + stroke, y))]
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
    for spine in axes.spines.values():
        spine.set(visible=True, color=ink["line"])
