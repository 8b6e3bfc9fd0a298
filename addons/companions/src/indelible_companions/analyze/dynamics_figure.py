"""The figure of an attack: WSR, BA and distance over its steps."""

from typing import TYPE_CHECKING

from indelible.report.drawing import COLUMN, Drawing, Ink, literal, percent_axis, series

if TYPE_CHECKING:
    from matplotlib import figure as mpl

    from indelible_companions.analyze.dynamics import Dynamics

_TRACKS = (0, 2, 4, 5, 1, 3)  # the first two are the farthest apart


def dynamics_drawing(result: "Dynamics") -> Drawing:
    """Return the figure of WSR and BA during an attack."""

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
        top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1.3, 1, 0.9))
        lost = [track.lost for track in result.tracks if track.lost is not None]
        for axes, name, scale in ((top, "wsr", 100), (middle, "ba", 100), (bottom, "distance", 1)):
            for number, track in enumerate(result.tracks):
                steps = [one.step for one in track.moments]
                values = [scale * getattr(one, name) for one in track.moments]
                series(axes, steps, values, _TRACKS[number % len(_TRACKS)], ink, literal(track.label))
            if lost:
                axes.plot(
                    [one.step for one in lost], [scale * getattr(one, name) for one in lost], marker="o", markersize=8,
                    markerfacecolor="none", markeredgecolor=ink["ink"], markeredgewidth=1.0, clip_on=False,
                    linestyle="none", label=f"verdict stops holding (α = {result.settings.alpha:g})",
                )  # fmt: skip
        percent_axis(top, "WSR in %")
        percent_axis(middle, "BA in %")
        bottom.set(ylabel="relative distance", xlabel=f"steps of {result.settings.attack.upper()}")
        bottom.set_ylim(bottom=0)
        figure.align_ylabels([top, middle, bottom])
        top.legend()

    return Drawing(COLUMN, 105, plot, result.alt)
