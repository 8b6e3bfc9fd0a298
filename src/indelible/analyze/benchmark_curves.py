"""Curves: WSR and BA against one thing that was varied, from the records of many runs.

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
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

from indelible.analyze.analysis import Analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import Measurement

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
