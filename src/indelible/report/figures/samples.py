"""Marked images: the kinds in one row, content marks of several sizes and transparencies below.

The marks of a codebook stand in lines of six, each with its number and class.
"""

from typing import TYPE_CHECKING

from indelible.analyze.samples import Samples
from indelible.report.figures.canvas import COLUMN, Drawing, Ink, literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["samples_drawing"]

_ROWS = {"kind": "kind", "size": "size", "transparency": "transparency", "mark": ""}
_LINE, _LONGEST = 6, 17


def samples_drawing(result: Samples) -> Drawing:
    """Return the figure of marked images."""
    names, table = [], []
    for name in _ROWS:
        row = [one for one in result.pictures if one.row == name]
        lines = [row[at : at + _LINE] for at in range(0, len(row), _LINE)]
        names += [name] * len(lines)
        table += lines
    columns = max(map(len, table))
    alt = (
        f"An image of class {result.carrier} as it is and with content, noise and unrelated marks, and with content "
        f"marks of several sizes and transparencies. A marked model answers the marked ones with {result.answer}."
    )
    if not result.answer:
        alt = f"Every mark of a codebook with its secret class. {' '.join(result.sentences())}"

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
                    axes.set_ylabel(_ROWS[names[number]], color=ink["muted"])

    return Drawing(COLUMN, len(table) * (COLUMN / columns + 3) + 2, plot, alt)
