"""Analyses of a benchmark's records: curves against what was varied, and the frontier of cost and robustness.

Curves: WSR and BA against one thing that was varied, from the records of many runs.

Paper: Gan et al., ICCV 2023: eps (Figure 5), architecture (Figure 6 and Appendix D), mark size and transparency
(Figure 8), target class (Appendix C), ANP's threshold and MCR's t (Appendix B); the rate of FP is ours.

| variable | what is read |
|---|---|
| ``eps`` | the embedding method's setting |
| ``target``, ``size``, ``transparency`` | settings of the key |
| ``architecture`` | the network |
| ``threshold``, ``t``, ``rate`` | the measured curve of ANP, MCR, FP: one point per strength, before any fine-tuning |
| ``u`` | the measured curve of CLP or BNP; ``share``, ``weight_bits``, ``sigma``: of pruning, quantisation, noise |

Seeds are averaged; the standard deviation over them (n - 1), their number and their verdicts are kept.
Where the paper reports a number, it stands beside.

Frontier: what a variant of APP costs against what it keeps of the watermark, from a benchmark's records.

Cost is image passes relative to plain training, by the settings of each model: 1 + extra rows / batch size
(:meth:`~indelible.embedding.app.AdversarialPerturbation.extra_rows`). Seconds follow it closely (docs/speed.md) and
differ between machines. Beside each variant stands its control: eps 0 at the same exposure, that is the same rows,
clean rows, steps between and share of the training. What the perturbation itself gives is the distance between the two.

Kinds of marks and seeds are put together: a spot is their mean, with the lowest and the highest. Where not all spots
are of the same kinds and seeds, the result says so.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

from indelible.analyze.analysis import Analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import Measurement
from indelible.embedding.app import AdversarialPerturbation

_WORDS = tomllib.loads(Path(__file__).with_name("variables.toml").read_text(encoding="utf-8"))
STRENGTHS: Mapping[str, str] = _WORDS["strengths"]
VARIABLES: Mapping[str, str] = {**_WORDS["settings"], **STRENGTHS}
"""What curves may be drawn against, each in words for the axis."""


@dataclass(frozen=True, kw_only=True)
class RatePoint:
    """One point of a curve; rates are fractions."""

    x: str  # the value, as it is written
    at: float | None  # the value as a number; None for names
    wsr: float | None  # mean over seeds
    ba: float | None  # mean over seeds
    wsr_sd: float | None  # standard deviation over seeds; None for one seed
    ba_sd: float | None  # likewise
    seeds: int  # how many
    verdicts: int  # how many of them have a verdict
    owned: int  # how many of the verdicts show ownership
    reported_wsr: float | None  # the paper's number, if there is one


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: a method and an attack, and whatever else tells it from the others."""

    label: str
    marks: tuple[RatePoint, ...]


@dataclass(frozen=True, kw_only=True)
class Curves(Analysis):
    """WSR and BA against one variable."""

    figure: ClassVar[str] = "curves"
    variable: str
    lines: tuple[Line, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per point."""
        return [
            {"line": line.label, self.variable: mark.x}
            | {name: value for name, value in vars(mark).items() if name not in {"x", "at"}}
            for line in self.lines
            for mark in line.marks
        ]

    @property
    def axis(self) -> str:
        """What is varied, in words for the axis of a figure."""
        return VARIABLES[self.variable]


Sample = tuple[Any, Mapping[str, Any], float | None]
"""A value of the variable, the rates there, and the WSR that the paper reports."""


def curves(
    measurements: Sequence[Measurement], variable: str, *, attack: str | None = None, kind: str | None = None
) -> Curves:
    """Gather WSR and BA against ``variable``, one of :data:`VARIABLES`.

    Only of this attack (``"none"``: of models before any) and of this kind of mark, by their labels, if given.
    """
    if variable not in VARIABLES:
        raise UnknownNameError("variable", variable, VARIABLES)
    wanted = [one for one in measurements if attack in {None, one.column or "none"} and kind in {None, one.mark}]
    grouped: dict[str, dict[Any, list[Sample]]] = {}
    for label, one in zip(_labels(wanted, variable), wanted, strict=True):
        for sample in _samples(one, variable):
            grouped.setdefault(label, {}).setdefault(sample[0], []).append(sample)
    lines = [
        # Numbers by size; names as they came.
        Line(
            label=label,
            marks=tuple(
                _point(value, values[value]) for value in (sorted(values) if all(map(_is_number, values)) else values)
            ),
        )
        for label, values in grouped.items()
        if len(values) > 1 or variable in STRENGTHS  # one value of a setting is no curve
    ]
    if not lines:
        raise InputError(
            f"no records vary {variable}: {len(measurements)} were read. Run a benchmark in which it varies, or choose "
            "another variable."
        )
    return Curves(variable=variable, lines=tuple(lines))


def _samples(one: Measurement, variable: str) -> list[Sample]:
    if variable in STRENGTHS:
        found = one.curve if one.curve is not None and one.curve.get("name") == variable else {}
        return [(row["value"], row, None) for row in found.get("rows", ())]
    value = one.value(variable)
    return [] if value is None else [(value, {"wsr": one.wsr, "ba": one.ba, "owned": one.owned}, one.reported)]


def _labels(wanted: Sequence[Measurement], variable: str) -> list[str]:
    """Name each measurement's curve: method and attack, and whatever else differs but is not varied."""
    others = [(one.dataset, None if variable == "architecture" else one.architecture, one.kind) for one in wanted]
    differing = [len(set(column)) > 1 for column in zip(*others, strict=True)]
    made = []
    for one, parts in zip(wanted, others, strict=True):
        after = f" after {one.column.upper()}" if one.column else ""
        more = [str(part) for part, differs in zip(parts, differing, strict=True) if differs]
        # Only over eps are APP and its control, which is APP with eps 0, the same curve.
        registered, method = one.made.get("method"), one.method
        if variable == "eps":
            method = str(registered or method)
        elif method == registered and one.factors.get("eps") == 0:
            method = f"{method} (eps 0)"
        made.append(", ".join([f"{method}{after}", *more]))
    return made


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _point(value: Any, samples: Sequence[Sample]) -> RatePoint:
    rates = {name: [float(row[name]) for _, row, _ in samples if row.get(name) is not None] for name in ("wsr", "ba")}
    mean = {name: fmean(found) if found else None for name, found in rates.items()}
    spread = {name: stdev(found) if len(found) > 1 else None for name, found in rates.items()}
    reported = [said for *_, said in samples if said is not None]
    verdicts = [row["owned"] for _, row, _ in samples if row.get("owned") is not None]
    return RatePoint(
        x=f"{value:g}" if _is_number(value) else str(value), at=float(value) if _is_number(value) else None,
        wsr=mean["wsr"], ba=mean["ba"], wsr_sd=spread["wsr"], ba_sd=spread["ba"], seeds=len(samples),
        verdicts=len(verdicts), owned=sum(verdicts), reported_wsr=fmean(reported) if reported else None,
    )  # fmt: skip


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
