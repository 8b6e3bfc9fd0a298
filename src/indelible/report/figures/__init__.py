"""Figures of analyses: the same numbers as PNG and SVG at column width, and inline for the page in light and dark."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from indelible.analyze.document import Analysis
from indelible.base.errors import InputError
from indelible.base.files import write_bytes, write_text
from indelible.report.figures.batchnorm import batchnorm_drawing
from indelible.report.figures.canvas import Drawing, as_inline, as_png, as_svg
from indelible.report.figures.curves import curves_drawing
from indelible.report.figures.dynamics import dynamics_drawing
from indelible.report.figures.frontier import frontier_drawing
from indelible.report.figures.landscape import landscape_drawing
from indelible.report.figures.samples import samples_drawing
from indelible.report.figures.tsne import tsne_drawing
from indelible.report.svg import can_draw

__all__ = ["DRAWINGS", "drawing_of", "inline_figure", "write_figure"]

DRAWINGS: Mapping[str, Callable[[Any], Drawing]] = {
    "landscape": landscape_drawing,
    "batchnorm": batchnorm_drawing,
    "tsne": tsne_drawing,
    "samples": samples_drawing,
    "curves": curves_drawing,
    "dynamics": dynamics_drawing,
    "frontier": frontier_drawing,
}


def drawing_of(analysis: Analysis) -> Drawing:
    """Return the figure of an analysis, ready to be drawn."""
    return DRAWINGS[analysis.figure](analysis)


def write_figure(analysis: Analysis, folder: str | Path) -> list[Path]:
    """Draw an analysis into ``folder`` as ``figure.png`` and ``figure.svg``; return their paths.

    Raises:
        InputError: Matplotlib is not installed.
    """
    if not can_draw():
        raise InputError('figures need matplotlib. Run: pip install "indelible[plots]"')
    drawing, place = drawing_of(analysis), Path(folder)
    write_bytes(place / "figure.png", as_png(drawing))
    write_text(place / "figure.svg", as_svg(drawing))
    return [place / "figure.png", place / "figure.svg"]


def inline_figure(analysis: Analysis, name: str) -> str:
    """Return the figure of an analysis as an ``<svg>`` element of the page; ``name`` is the prefix of its ids."""
    return as_inline(drawing_of(analysis), name)
