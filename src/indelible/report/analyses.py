"""Analyses in the page: what each says, and its figure in the page's colours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.analyze.document import ANALYSIS, Analysis
from indelible.analyze.kinds import read_analysis
from indelible.report.figures import drawing_of
from indelible.report.figures.canvas import COLUMN, as_inline
from indelible.report.svg import can_draw

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Shown", "find_analyses", "shown_analyses"]

_TITLES = {
    "landscape": "The neighbourhood of each model",
    "batchnorm": "BatchNorm statistics of clean and watermark samples",
    "tsne": "Features in two dimensions",
    "samples": "Kinds, sizes and transparencies of marks",
    "curves": "What was varied",
    "dynamics": "The mark while an attack goes on",
    "frontier": "Cost against robustness",
}
_NOTES = {
    "curves": "A WSR shows ownership only where its verdict does: `indelible report` on the same records has both.",
    "landscape": "Black dot: the model itself. Red star: after 40 iterations of fine-tuning. Dashed: 50 %. BatchNorm "
    "statistics are estimated anew at every point. A WSR is no verdict: that of a codebook may hold far below 50 %.",
    "tsne": "Panels of one row share one map; those of different models do not. The share of neighbours is counted in "
    "the feature space, not in the picture.",
    "frontier": "Open rings are controls: eps 0, the same exposure to watermark samples. Lines span kinds and seeds. "
    "Variants of the same cost stand side by side. A WSR shows ownership only where its verdict does.",
    "dynamics": "Measured from outside by the holder of the key; the attacker sees none of it.",
}


@dataclass(frozen=True)
class Shown:
    """One analysis as the page shows it: ``svg`` is None without matplotlib."""

    title: str
    sentences: tuple[str, ...]
    note: str
    svg: "Markup | None"
    wide: bool


def find_analyses(paths: Sequence[str | Path]) -> list[Path]:
    """Return the folders of finished analyses in or under ``paths``, each once, in the order of their names."""
    found = dict.fromkeys(
        file.parent.resolve() for path in paths for file in sorted(Path(path).rglob(ANALYSIS)) if file.is_file()
    )
    return list(found)


def shown_analyses(folders: Sequence[Path], *, samples: bool = True) -> list[Shown]:
    """Read analyses for the page.

    Args:
        folders: As found by :func:`find_analyses`.
        samples: Show those that give the marks away.
    """
    return [_shown(one, number) for number, one in enumerate(_read(folders, samples=samples))]


def _read(folders: Sequence[Path], *, samples: bool) -> Iterator[Analysis]:
    for folder in folders:
        found = read_analysis(folder)
        if samples or found.figure != "samples":
            yield found


def _shown(analysis: Analysis, number: int) -> Shown:
    from markupsafe import Markup

    svg = None
    drawing = drawing_of(analysis)
    if can_draw():
        # Markup: the SVG is ours; matplotlib escapes the labels in it, and its name was escaped when it was drawn.
        svg = Markup(as_inline(drawing, f"a{number}"))  # noqa: S704
    return Shown(
        _TITLES[analysis.figure], tuple(analysis.sentences()), _NOTES.get(analysis.figure, ""), svg,
        drawing.width > COLUMN,
    )  # fmt: skip
