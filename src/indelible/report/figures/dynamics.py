"""Dynamics: WSR, BA and distance over the steps of an attack; a ring where the verdict stops holding."""

from typing import TYPE_CHECKING

from indelible.analyze.dynamics import Dynamics
from indelible.report.figures.canvas import COLUMN, Drawing, Ink, legend, literal, percent_axis, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["dynamics_drawing"]

_LOOKS = (0, 2, 4, 5, 1, 3)  # the first two are the farthest apart


def dynamics_drawing(result: Dynamics) -> Drawing:
    """Return the figure of an attack under way."""
    alt = f"WSR, BA and relative distance travelled over the steps of {result.settings.attack.upper()}. "
    alt += " ".join(result.sentences())

    def plot(figure: "Figure", ink: Ink) -> None:
        top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1.3, 1, 0.9))
        for number, track in enumerate(result.tracks):
            steps = [one.step for one in track.moments]
            for axes, values in (
                (top, [100 * one.wsr for one in track.moments]),
                (middle, [100 * one.ba for one in track.moments]),
                (bottom, [one.distance for one in track.moments]),
            ):
                series(axes, steps, values, _LOOKS[number % len(_LOOKS)], ink, literal(track.label))
            if (lost := track.lost) is not None:
                for axes, value in ((top, 100 * lost.wsr), (middle, 100 * lost.ba), (bottom, lost.distance)):
                    axes.plot(
                        [lost.step], [value], marker="o", markersize=8, markerfacecolor="none",
                        markeredgecolor=ink["ink"], markeredgewidth=1.0, clip_on=False, linestyle="none",
                        label=f"verdict stops holding (α = {result.settings.alpha:g})" if axes is top else None,
                    )  # fmt: skip
        percent_axis(top, "WSR in %")
        percent_axis(middle, "BA in %")
        bottom.set_ylabel("relative distance")
        bottom.set_ylim(bottom=0)
        bottom.grid(visible=True, axis="y")
        bottom.set_xlabel(f"steps of {result.settings.attack.upper()}")
        figure.align_ylabels([top, middle, bottom])
        handles, labels = top.get_legend_handles_labels()
        # The ring stands once, behind the models.
        once = dict(sorted(zip(labels, handles, strict=True), key=lambda pair: pair[0].startswith("verdict ")))
        legend(top, ink, handles=list(once.values()), labels=list(once), loc="best")

    return Drawing(COLUMN, 105, plot, alt)
