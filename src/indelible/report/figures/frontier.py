"""The frontier: WSR after an attack above, BA below, against cost; an open ring is the control at the same exposure."""

from typing import TYPE_CHECKING

from indelible.analyze.frontier import Frontier, Spot
from indelible.report.figures.canvas import COLUMN, Drawing, Ink, legend, literal, percent_axis
from indelible.report.palette import slot_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["frontier_drawing"]

_ASIDE = 0.04
_APP, _OTHER = 2, 0  # looks: APP's in every figure, and Vanilla's


def frontier_drawing(result: Frontier) -> Drawing:
    """Return the figure of cost against robustness."""
    alt = f"WSR after {result.attack.upper()} and BA against the cost of training. " + " ".join(result.sentences())

    def plot(figure: "Figure", ink: Ink) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
        for axes, rate in ((above, "wsr"), (below, "ba")):
            _spots(axes, result, rate, ink)
        best = result.best()
        if len(best) > 1:
            above.plot(
                [spot.cost for spot in best], [100 * spot.wsr for spot in best], color=ink[slot_of(_APP).name],
                linewidth=0.8, zorder=1, label="no cheaper variant keeps more",
            )  # fmt: skip
        percent_axis(above, f"WSR in % after {literal(result.attack.upper())}")
        below.set_ylabel("BA in %")
        low, high = below.get_ylim()
        below.set_ylim(low - 0.35 * (high - low), high)  # room for the names
        below.grid(visible=True, axis="y")
        below.set_xlabel("image passes relative to plain training")
        figure.align_ylabels([above, below])
        legend(above, ink, loc="best")

    return Drawing(COLUMN, 100, plot, alt)


def _spots(axes: "Axes", result: Frontier, rate: str, ink: Ink) -> None:
    known = {spot.label: number for number, spot in enumerate(result.spots)}
    for number, spot in enumerate(result.spots):
        value, place = 100 * getattr(spot, rate), _place(result, number)
        lowest = value
        if rate == "wsr":
            lowest = 100 * spot.low
            axes.plot([place] * 2, [lowest, 100 * spot.high], color=ink[slot_of(_look(spot)).name], linewidth=0.7)
        axes.plot(
            [place], [value], linestyle="none", marker=slot_of(_look(spot)).marker, markersize=5, clip_on=False,
            color=ink[slot_of(_look(spot)).name], markerfacecolor=_face(spot, ink), label=_once(result, number),
        )  # fmt: skip
        if spot.control is not None:
            other = known[spot.control]
            axes.plot(
                [place, _place(result, other)], [value, 100 * getattr(result.spots[other], rate)], color=ink["ink"],
                linewidth=0.5, linestyle=":", zorder=0,
            )  # fmt: skip
        if spot.perturbed or spot.cost == 1.0:
            axes.annotate(
                literal(spot.label), (place, lowest), xytext=(0, -5), textcoords="offset points", fontsize=6,
                rotation=90, ha="center", va="top",
            )  # fmt: skip


def _place(result: Frontier, number: int) -> float:
    """Return where a spot stands: at its cost; several of one cost stand side by side around it."""
    cost = result.spots[number].cost
    alike = [other for other, spot in enumerate(result.spots) if spot.cost == cost]
    return cost + _ASIDE * (alike.index(number) - (len(alike) - 1) / 2)


def _look(spot: Spot) -> int:
    return _APP if spot.perturbed or spot.cost > 1.0 else _OTHER


def _face(spot: Spot, ink: Ink) -> str:
    return ink[slot_of(_look(spot)).name] if spot.perturbed or spot.cost == 1.0 else ink["ground"]


def _sort(spot: Spot) -> str:
    if spot.perturbed:
        return "APP"
    return "control, eps 0" if spot.cost > 1.0 else "Vanilla"


def _once(result: Frontier, number: int) -> str | None:
    """Return what a spot is called in the legend, where each sort stands once."""
    sort = _sort(result.spots[number])
    return None if sort in [_sort(spot) for spot in result.spots[:number]] else sort
