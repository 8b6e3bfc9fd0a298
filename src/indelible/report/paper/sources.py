"""Where the numbers of a table come from: the paper alone, or a preset's results with the paper beside them."""

from collections.abc import Sequence

from indelible.base.errors import InputError, UnknownNameError
from indelible.report.paper.filling import fill
from indelible.report.paper.grid import Grid
from indelible.report.paper.layouts import LAYOUTS, MAIN, Layout, layout_for
from indelible.report.paper.observations import Observation, Results
from indelible.report.paper.published import published

__all__ = ["measured_tables", "reported_tables"]

ALL = "all"


def _reported(layout: Layout) -> list[Observation]:
    return [one for section in layout.sections for one in published(section)]


def reported_tables(names: Sequence[str] = MAIN) -> list[Grid]:
    """Return the paper's tables from its own numbers; nothing is run.

    Args:
        names: Names of layouts; ``"all"`` for every one that the paper prints numbers for.
    """
    wanted = list(dict.fromkeys(names or MAIN))
    if ALL in wanted:
        wanted = [name for name, layout in LAYOUTS.items() if layout.sections]
    grids = []
    for name in wanted:
        if name not in LAYOUTS:
            raise UnknownNameError("table", name, [*LAYOUTS, ALL])
        if not LAYOUTS[name].sections:
            raise InputError(
                f"the paper prints no numbers for {name!r} (it shows a figure). Measure them: "
                f"indelible bench run {LAYOUTS[name].presets[0]}"
            )
        grids += fill(LAYOUTS[name], _reported(LAYOUTS[name]))
    return grids


def measured_tables(results: Sequence[Results]) -> list[Grid]:
    """Return the tables of some presets' results, with the paper's numbers beside them where there are any."""
    grids = []
    for one in results:
        if not one.observations:
            raise InputError(
                f"the results of {one.preset!r} hold no cell yet. Run it: indelible bench run {one.preset}"
            )
        layout = layout_for(one)
        grids += fill(layout, _reported(layout), one.observations)
    return grids
