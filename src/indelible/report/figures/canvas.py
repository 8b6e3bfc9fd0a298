"""What all figures share: the width of a column, small type, the house's colours, and their ways to paper and page.

Sizes are in millimetres: 85 is a column of a two-column paper, 174 both. A figure is drawn in light colours for files
and in sentinels for the page (:mod:`indelible.report.svg`), by the same function.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indelible.report.palette import LIGHT, slot_of
from indelible.report.svg import METADATA, SENTINELS, inlined, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BOTH",
    "COLUMN",
    "Drawing",
    "Ink",
    "as_inline",
    "as_png",
    "as_svg",
    "dots",
    "legend",
    "literal",
    "percent_axis",
    "series",
]

COLUMN, BOTH = 85.0, 174.0
Ink = Mapping[str, str]
_INCH = 25.4
_DPI = 220
_TYPE = 7.0


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn in any colours.

    Attributes:
        width: In millimetres.
        height: In millimetres.
        plot: Draws into an empty figure, in the colours it is given.
        alt: The figure in words, for those who do not see it.
    """

    width: float
    height: float
    plot: Callable[["Figure", Ink], None]
    alt: str


def _drawn(drawing: Drawing, name: str, ink: Ink, save: Callable[["Figure"], None]) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    small: dict[Any, Any] = {
        "font.size": _TYPE, "axes.titlesize": _TYPE, "axes.titleweight": "bold", "axes.labelsize": _TYPE,
        "axes.titlepad": 3, "axes.labelpad": 2, "xtick.labelsize": _TYPE - 0.5, "ytick.labelsize": _TYPE - 0.5,
        "xtick.major.pad": 2, "ytick.major.pad": 2, "lines.linewidth": 1.2, "lines.markersize": 3.2,
        "axes.linewidth": 0.6, "grid.linewidth": 0.5, "xtick.major.width": 0.6, "xtick.major.size": 2,
    }  # fmt: skip
    with mpl.rc_context({**look(name, ink), **small}):
        figure = Figure(figsize=(drawing.width / _INCH, drawing.height / _INCH), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.03, hspace=0.03)  # type: ignore[union-attr,call-arg]
        drawing.plot(figure, ink)
        save(figure)


def as_png(drawing: Drawing) -> bytes:
    """Return the figure as PNG on white, 220 dots an inch, in 256 colours: a third of the bytes, no visible loss."""
    from PIL import Image

    file = io.BytesIO()
    _drawn(
        drawing, "figure", LIGHT,
        lambda figure: figure.savefig(file, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None}),
    )  # fmt: skip
    small = io.BytesIO()
    whole = Image.open(io.BytesIO(file.getvalue())).convert("RGB")
    whole.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        small, format="PNG", optimize=True, dpi=(_DPI, _DPI)
    )
    return small.getvalue()


def as_svg(drawing: Drawing) -> str:
    """Return the figure as an SVG file in light colours; text stays text."""
    file = io.StringIO()
    _drawn(
        drawing, "figure", LIGHT,
        lambda figure: figure.savefig(file, format="svg", facecolor="white", metadata=dict.fromkeys(METADATA)),
    )  # fmt: skip
    return file.getvalue()


def as_inline(drawing: Drawing, name: str) -> str:
    """Return the figure as an ``<svg>`` element in the page's colours; ``name`` is the prefix of its ids."""
    file = io.StringIO()
    _drawn(
        drawing, name, SENTINELS,
        lambda figure: figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(METADATA)),
    )  # fmt: skip
    size = (72 * drawing.width / _INCH, 72 * drawing.height / _INCH)
    return inlined(file.getvalue(), drawing.alt, name, size)


def percent_axis(axes: "Axes", label: str) -> None:
    """Give an axis of rates: 0 to 100 %, with lines."""
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel(label)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def series(axes: "Axes", xs: Sequence[float], ys: Sequence[float], number: int, ink: Ink, label: str) -> None:
    """Draw one line in the look of series ``number``, with its own colour, marker and dashes."""
    slot = slot_of(number)
    axes.plot(
        xs, ys, color=ink[slot.name], linestyle=(0, slot.dash) if slot.dash else "-", marker=slot.marker, label=label,
        markevery=max(1, len(xs) // 12), clip_on=False, solid_joinstyle="round",
    )  # fmt: skip


def legend(axes: "Axes", ink: Ink, **where: Any) -> None:
    """Add a legend that does not hide data behind an opaque box."""
    box = axes.legend(handlelength=2.6, borderpad=0.3, labelspacing=0.3, **where)
    box.get_frame().set(facecolor=ink["ground"], edgecolor="none", alpha=0.8)


def literal(text: str) -> str:
    """Return a user's text so that matplotlib takes no dollar in it for mathematics."""
    return text.replace("$", r"\$")


def dots(axes: "Axes", spots: Sequence[tuple[float, float]], colour: str, size: float, span: float) -> None:
    """Draw many round dots as one path: a tenth of the bytes that a marker each would take.

    Args:
        axes: Where.
        spots: (x, y) of each.
        colour: Of all.
        size: Diameter in points.
        span: Extent of the axes; a dot is a stroke of a five-hundredth of it with round ends.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = [point for x, y in spots for point in ((x, y), (x + span / 500, y))]
    path = Path(corners, [Path.MOVETO, Path.LINETO] * len(spots))
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=size, capstyle="round", snap=False))
