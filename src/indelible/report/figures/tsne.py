"""t-SNE: one row a model, one panel a place on its path; watermark samples as crosses over dots of the classes."""

from typing import TYPE_CHECKING

from indelible.analyze.tsne import Sheet, Tsne
from indelible.report.figures.canvas import BOTH, COLUMN, Drawing, Ink, dots, literal
from indelible.report.format import join_words
from indelible.report.palette import SLOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["tsne_drawing"]

_NAMES = {"adversarial": "relative distance along $d_{adv}$", "tuning": "iterations of fine-tuning"}
_DOT = 1.6


def tsne_drawing(result: Tsne) -> Drawing:
    """Return the figure of a t-SNE."""
    still = result.settings.path == "still"
    # Models without a path stand side by side; with one, each has its row.
    table = [[(row.label, row.sheets[0]) for row in result.models]] if still else [
        [(row.label, sheet) for sheet in row.sheets] for row in result.models
    ]  # fmt: skip
    columns = len(table[0])
    width = COLUMN if columns <= 2 else BOTH
    said = [
        f"{row.label} {100 * row.sheets[0].mixed:.0f} %" + ("" if still else f" to {100 * row.sheets[-1].mixed:.0f} %")
        for row in result.models
    ]
    alt = (
        "Penultimate features of clean images, by class, and of watermark samples, in two dimensions. Share of the "
        f"watermark samples' nearest clean neighbours outside the target class: {join_words(said)}."
    )

    def plot(figure: "Figure", ink: Ink) -> None:
        grid = figure.subplots(len(table), columns, squeeze=False)
        for number, line in enumerate(table):
            span = _span([sheet for _, sheet in line])
            for column, (label, sheet) in enumerate(line):
                axes = grid[number][column]
                _panel(axes, result, sheet, ink, span)
                title = label if still else sheet.title
                axes.set_title(f"{literal(title)}\nWSR {100 * sheet.wsr:.0f} %")
                if column == 0 and not still:
                    axes.set_ylabel(literal(label), color=ink["ink"], fontweight="bold")
        classes = "  ".join(
            literal(f"{number}\N{NO-BREAK SPACE}{name}") for number, name in enumerate(result.classes[:20])
        )
        where = "" if still else f"{_NAMES[result.settings.path]};  "
        figure.supxlabel(_wrapped(f"{where}×  watermark;  {classes}", width), fontsize="medium", color=ink["muted"])

    return Drawing(width, (width / columns + 7) * len(table) + (8 if columns > 2 else 14), plot, alt)


def _wrapped(text: str, width: float) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, round(width * 0.78), break_long_words=False))


def _span(sheets: list[Sheet]) -> tuple[float, float, float, float]:
    """Return the limits that all panels of a row share."""
    xs, ys = zip(*(spot for sheet in sheets for spot in (*sheet.clean, *sheet.marked)), strict=True)
    edge = 0.05 * max(max(xs) - min(xs), max(ys) - min(ys), 1e-9)
    return min(xs) - edge, max(xs) + edge, min(ys) - edge, max(ys) + edge


def _panel(axes: "Axes", result: Tsne, sheet: Sheet, ink: Ink, span: tuple[float, float, float, float]) -> None:
    from matplotlib.patheffects import withStroke

    left, right, low, high = span
    for label in sorted(set(result.labels)):
        spots = [spot for spot, of in zip(sheet.clean, result.labels, strict=True) if of == label]
        dots(axes, spots, ink[SLOTS[label % len(SLOTS)].name], _DOT, right - left)
        # The number names the class: ten colours that everybody can tell apart do not exist.
        x, y = (sorted(values)[len(values) // 2] for values in zip(*spots, strict=True))
        axes.text(
            x, y, str(label), ha="center", va="center", fontsize=6.5, fontweight="bold", zorder=4,
            path_effects=[withStroke(linewidth=1.6, foreground=ink["ground"])],
        )  # fmt: skip
    xs, ys = zip(*sheet.marked, strict=True)
    axes.plot(xs, ys, "x", color=ink["ink"], markersize=2.4, markeredgewidth=0.7, zorder=3)
    axes.set(xlim=(left, right), ylim=(low, high), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=ink["line"])
