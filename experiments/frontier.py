"""What variants of APP cost against what they keep of the watermark, from the records of a benchmark.

Cost is image passes relative to plain training, by the settings of each model: 1 + extra rows / batch size
(:meth:`~indelible.embedding.app.AdversarialPerturbation.extra_rows`). Seconds follow it closely (docs/speed.md) and
differ between machines. Beside each variant stands its control: eps 0 at the same exposure, that is the same rows,
clean rows, steps between and share of the training. What the perturbation itself gives is the distance between the two.

Kinds of marks and seeds are put together: a spot is their mean, with the lowest and the highest. Where not all spots
are of the same kinds and seeds, the result says so.

Run it: python experiments/frontier.py results/app-fast-cpu.json --attack ft --kind content,unrelated
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from indelible.analyze.analysis import Analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_bytes, write_json, write_text
from indelible.bench.measurement import Measurement, read_measurements
from indelible.embedding.app import AdversarialPerturbation
from indelible.report.drawing import COLUMN, Drawing, Ink, as_png, as_svg, literal, percent_axis
from indelible.report.format import percent, verdict_sign
from indelible.report.page_look import slot_of

if TYPE_CHECKING:
    from matplotlib import figure as mpl
    from matplotlib.axes import Axes

Pair = tuple[Measurement, Measurement]
"""A model before and after the attack."""
_ASIDE = 0.04
_APP, _OTHER = 2, 0  # looks: APP's in every figure, and Vanilla's
_VANILLA, _CONTROL = "Vanilla", "control, eps 0"
_EXPOSURE = ("rows", "clean_rows", "clean_bn", "every", "after", "alpha")
_BASE = "vanilla"
# Settings in published records that APP no longer has, at the values that change nothing.
_DROPPED = {("keep", 1), ("ascent_rows", None)}


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One method, before and after the attack; rates are fractions."""

    label: str  # what the preset calls it
    cost: float  # image passes relative to plain training
    wsr: float  # mean WSR after the attack
    low: float  # lowest WSR after the attack
    high: float  # highest WSR after the attack
    ba: float  # mean accuracy before the attack
    ba_after: float  # mean accuracy after the attack
    runs: int  # models, over kinds and seeds
    over: tuple[str, ...]  # those kinds and seeds, such as `"content 0"`
    verdicts: int  # how many models have a verdict after the attack
    owned: int  # how many of the verdicts show ownership
    control: str | None  # label of the control at the same exposure; None for a control, and where there is none
    perturbed: bool  # whether weights are perturbed: False for controls and other methods

    @property
    def judged(self) -> str:
        """The verdicts after the attack, in words."""
        return f"{self.owned} of {self.verdicts} owned" if self.verdicts else "no verdict"


@dataclass(frozen=True, kw_only=True)
class Frontier(Analysis, registered=False):
    """Cost against robustness: WSR after ``attack``, the cheapest method first."""

    figure: ClassVar[str] = "frontier"
    attack: str
    spots: tuple[Spot, ...]

    def sentences(self) -> list[str]:
        """Return what the numbers say, one sentence a method."""
        said = []
        for spot in self.spots:
            control = next((other for other in self.spots if other.label == spot.control), None)
            beside = (
                ""
                if control is None
                else f"; with eps 0 at the same exposure WSR {percent(control.wsr)} % ({control.judged})"
            )
            said.append(
                f"{spot.label}: {spot.cost:.2f} x plain training, WSR {percent(spot.wsr)} % after "
                f"{self.attack.upper()} ({percent(spot.low)} to {percent(spot.high)}, {spot.runs} "
                f"model{'s' if spot.runs != 1 else ''}, {spot.judged}), BA {percent(spot.ba)} % before{beside}."
            )
        if len({spot.over for spot in self.spots}) > 1:
            each = "; ".join(f"{spot.label} {', '.join(spot.over)}" for spot in self.spots)
            said.append(f"Not all are of the same kinds and seeds: {each}.")
        return said

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        return f"WSR after {self.attack.upper()} and BA against the cost of training. {' '.join(self.sentences())}"

    def best(self) -> list[Spot]:
        """Return the perturbed methods that no cheaper, or equally cheap, perturbed one beats in WSR."""
        kept: list[Spot] = []
        for spot in sorted((one for one in self.spots if one.perturbed), key=lambda one: (one.cost, -one.wsr)):
            if not kept or spot.wsr > kept[-1].wsr:
                kept.append(spot)
        return kept


def frontier(measurements: Sequence[Measurement], *, attack: str = "ft", kinds: Collection[str] = ()) -> Frontier:
    """Return cost and robustness of every method in a benchmark's results.

    WSR is taken after ``attack``, its label in the preset; only of these ``kinds`` of marks, if any are given.
    """
    known = dict.fromkeys(one.mark for one in measurements)
    for kind in kinds:
        if kind not in known:
            raise UnknownNameError("kind of mark in these records", kind, known)
    chosen = [one for one in measurements if not kinds or one.mark in kinds]
    after = {one.model: one for one in chosen if one.column == attack and one.wsr is not None}
    found: dict[str, list[Pair]] = {}
    for one in chosen:
        if one.column is None and one.model in after:
            found.setdefault(one.method, []).append((one, after[one.model]))
    if not found:
        raise InputError(
            f"no method has both a model and the attack {attack!r} in these records. Run the preset's cells first: "
            "indelible bench run app-fast-cpu"
        )
    spots = [_spot(label, found) for label in found]
    return Frontier(attack=attack, spots=tuple(sorted(spots, key=lambda spot: spot.cost)))


def _method(pairs: Sequence[Pair]) -> AdversarialPerturbation | None:
    made = pairs[0][0].made
    if made["method"] != "app":
        return None
    own = {name: value for name, value in made["method_settings"].items() if (name, value) not in _DROPPED}
    return AdversarialPerturbation.of(own)


def _spot(label: str, found: Mapping[str, Sequence[Pair]]) -> Spot:
    pairs, method = found[label], _method(found[label])
    made, cost = pairs[0][0].made, 1.0
    if method is not None:
        cost += method.extra_rows() / made["train"]["batch_size"]
    elif made["method"] != _BASE:
        raise InputError(
            f"the frontier compares variants of APP with Vanilla, but {label!r} is neither. Choose cells with --only."
        )
    kept = [attacked.wsr for _, attacked in pairs if attacked.wsr is not None]
    verdicts = [attacked.owned for _, attacked in pairs if attacked.owned is not None]
    before, after = ([one.ba for one in stage if one.ba is not None] for stage in zip(*pairs, strict=True))
    return Spot(
        label=label, cost=cost, wsr=fmean(kept), low=min(kept), high=max(kept),
        ba=fmean(before), ba_after=fmean(after), runs=len(pairs),
        over=tuple(sorted(f"{model.mark} {model.seed}" for model, _ in pairs)),
        verdicts=len(verdicts), owned=sum(verdicts), control=_control(method, found),
        perturbed=method is not None and method.eps > 0,
    )  # fmt: skip


def _control(method: AdversarialPerturbation | None, found: Mapping[str, Sequence[Pair]]) -> str | None:
    if method is None or method.eps == 0:
        return None
    for label, pairs in found.items():
        other = _method(pairs)
        if other is not None and other.eps == 0 and all(getattr(method, n) == getattr(other, n) for n in _EXPOSURE):
            return label
    return None


def frontier_drawing(result: Frontier) -> Drawing:
    """Return the figure of cost against robustness."""

    def plot(figure: "mpl.Figure", ink: Ink) -> None:
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
        below.set_xlabel("image passes relative to plain training")
        figure.align_ylabels([above, below])
        above.legend()

    return Drawing(COLUMN, 100, plot, result.alt)


def _spots(axes: "Axes", result: Frontier, rate: str, ink: Ink) -> None:
    known = {spot.label: number for number, spot in enumerate(result.spots)}
    # Only APP and its controls cost more than plain training.
    sorts = ["APP" if one.perturbed else _CONTROL if one.cost > 1.0 else _VANILLA for one in result.spots]
    for number, (spot, sort) in enumerate(zip(result.spots, sorts, strict=True)):
        look = slot_of(_OTHER if sort == _VANILLA else _APP)
        colour, named = ink[look.name], sort != _CONTROL
        value, place = 100 * getattr(spot, rate), _place(result, number)
        lowest = value
        if rate == "wsr":
            lowest = 100 * spot.low
            axes.plot([place] * 2, [lowest, 100 * spot.high], color=colour, linewidth=0.7)
        axes.plot(
            [place], [value], linestyle="none", marker=look.marker, markersize=5, clip_on=False, color=colour,
            markerfacecolor=colour if named else ink["ground"],
            label=sort if sort not in sorts[:number] else None,  # each sort stands in the legend once
        )  # fmt: skip
        if spot.control is not None:
            other = known[spot.control]
            axes.plot(
                [place, _place(result, other)], [value, 100 * getattr(result.spots[other], rate)], color=ink["ink"],
                linewidth=0.5, linestyle=":", zorder=0,
            )  # fmt: skip
        sign = verdict_sign([True] * spot.owned + [False] * (spot.verdicts - spot.owned))
        if named:
            axes.annotate(
                literal(f"{spot.label} {sign}" if rate == "wsr" else spot.label), (place, lowest), xytext=(0, -5),
                textcoords="offset points", fontsize=6, rotation=90, ha="center", va="top",
            )  # fmt: skip
        elif rate == "wsr":
            axes.annotate(sign, (place, value), xytext=(5, -2), textcoords="offset points", fontsize=6)


def _place(result: Frontier, number: int) -> float:
    """Return where a spot stands: at its cost; several of one cost stand side by side around it."""
    cost = result.spots[number].cost
    alike = [other for other, spot in enumerate(result.spots) if spot.cost == cost]
    return cost + _ASIDE * (alike.index(number) - (len(alike) - 1) / 2)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the numbers and the picture, and print what they say."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("records", type=Path, nargs="+", help="exports of a benchmark (JSON)")
    options.add_argument("--attack", default="ft", help="WSR after this attack (default: ft)")
    options.add_argument("--kind", help="only records of this kind of mark, or these: content,unrelated")
    options.add_argument("--out", type=Path, default=Path("analysis/frontier"), help="folder of the result")
    arguments = options.parse_args(argv)
    kinds = arguments.kind.split(",") if arguments.kind else ()
    made = frontier(read_measurements(arguments.records), attack=arguments.attack, kinds=kinds)
    picture, folder = frontier_drawing(made), arguments.out
    write_json(folder / "frontier.json", made.to_json())
    write_bytes(folder / "figure.png", as_png(picture))
    write_text(folder / "figure.svg", as_svg(picture))
    print("\n".join(made.sentences()))


if __name__ == "__main__":
    main()
