"""The frontier: what a variant of APP costs against what it keeps of the watermark, from a benchmark's records.

Cost is image passes relative to plain training, by the settings of each model: 1 + extra rows / batch size
(:meth:`~indelible.embedding.app.AdversarialPerturbation.extra_rows`). Seconds follow it closely (docs/speed.md) and
differ between machines. Beside each variant stands its control: eps 0 at the same exposure, that is the same rows,
clean rows, steps between and share of the training. What the perturbation itself gives is the distance between the two.

Kinds of marks and seeds are put together: a spot is their mean, with the lowest and the highest. Where not all spots
are of the same kinds and seeds, the result says so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from indelible.analyze.analysis import Analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import Measurement
from indelible.embedding.app import AdversarialPerturbation

Pair = tuple[Measurement, Measurement]
"""A model before and after the attack."""
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


@dataclass(frozen=True, kw_only=True)
class Frontier(Analysis):
    """Cost against robustness: WSR after ``attack``, the cheapest method first."""

    figure: ClassVar[str] = "frontier"
    attack: str
    spots: tuple[Spot, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per method."""
        return [vars(spot) | {"over": ", ".join(spot.over)} for spot in self.spots]

    def best(self) -> list[Spot]:
        """Return the perturbed methods that no cheaper, or equally cheap, perturbed one beats in WSR."""
        kept: list[Spot] = []
        for spot in sorted((one for one in self.spots if one.perturbed), key=lambda one: (one.cost, -one.wsr)):
            if not kept or spot.wsr > kept[-1].wsr:
                kept.append(spot)
        return kept

    def sentences(self) -> list[str]:
        """Say what each method costs and keeps, and what its control keeps."""
        known = {spot.label: spot for spot in self.spots}
        said = []
        for spot in self.spots:
            words = f"{spot.label}: {spot.cost:.2f} x plain training, WSR {100 * spot.wsr:.1f} % after "
            models = "1 model" if spot.runs == 1 else f"{spot.runs} models"
            words += (
                f"{self.attack.upper()} ({100 * spot.low:.1f} to {100 * spot.high:.1f}, {models}, {_judged(spot)}), "
            )
            words += f"BA {100 * spot.ba:.1f} % before"
            if spot.control is not None:
                other = known[spot.control]
                words += f"; with eps 0 at the same exposure WSR {100 * other.wsr:.1f} % ({_judged(other)})"
            said.append(words + ".")
        if len({spot.over for spot in self.spots}) > 1:
            over = "; ".join(f"{spot.label} {', '.join(spot.over)}" for spot in self.spots)
            said.append(f"Not all are of the same kinds and seeds: {over}.")
        return said


def _judged(spot: Spot) -> str:
    return f"{spot.owned} of {spot.verdicts} owned" if spot.verdicts else "no verdict"


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
