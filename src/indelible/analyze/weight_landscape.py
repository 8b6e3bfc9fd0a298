"""Landscape: WSR and BA on the plane of d_adv and d_FT around a marked model.

Paper: Gan et al., ICCV 2023, Figures 1 and 9 and Appendix A. The directions are those of
:mod:`indelible.analyze.directions`; at every point BatchNorm statistics are estimated anew on clean images.

| name | default | source |
|---|---|---|
| ``adv``, ``ft`` | -0.02 .. 0.06, -0.06 .. 0.24 | ours: the paper speaks of 0.03 along d_adv and 0.14 along d_FT |
| ``steps`` | 21 | ours: nodes along each axis |
| ``tolerance``, ``stride`` | 0.1, 4 | ours: see :mod:`indelible.analyze.adaptive_grid`; -1 measures every node |
| ``tune_steps``, ``tune_lr`` | 40, 0.05 | Appendix A |
| ``norm`` | ``"global"`` | Appendix A |
| ``images``, ``marked``, ``statistics`` | 1000, 500, 512 | ours: images for BA, for WSR, and for BatchNorm |
| ``gradient`` | 500 | ours: embedded samples that d_adv is computed on |
| ``reach`` | 5 | ours: how far the walk along a direction goes, in lengths of the axis |

The point (0, 0) is the model as it is, with its own statistics; what re-estimation alone does to it is kept beside it.
The summary is the relative distance at which WSR first falls below 50 % along each direction.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from indelible.analyze.adaptive_grid import FirstFall, Node, axis, filled, first_cells, first_fall, refined
from indelible.analyze.analysis import Analysis, PointLog
from indelible.analyze.directions import combined, cosine, removal_direction, tuning_direction, weights_of
from indelible.analyze.marked_model import MarkedModel, Probe, Rates
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.base.progress import Progress
from indelible.nn.perturbation import Norm, perturbed

_NEAR = 0.05  # points of accuracy that a thief may give up and still have a useful model


@dataclass(frozen=True, kw_only=True)
class LandscapeSettings(Method):
    """What to measure; the table in the module's header explains each setting."""

    adv: tuple[float, float] = (-0.02, 0.06)
    ft: tuple[float, float] = (-0.06, 0.24)
    steps: int = 21
    tolerance: float = 0.1
    stride: int = 4
    tune_steps: int = 40
    tune_lr: float = 0.05
    norm: Norm = "global"
    images: int = 1000
    marked: int = 500
    statistics: int = 512
    gradient: int = 500
    reach: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "adv", tuple(self.adv))  # JSON gives lists
        object.__setattr__(self, "ft", tuple(self.ft))
        if self.reach < 1:
            raise InputError(f"reach must be at least 1 (in lengths of an axis), got {self.reach:g}.")

    @property
    def axes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values of a (along d_adv) and of b (along d_FT)."""
        return axis(*self.adv, self.steps), axis(*self.ft, self.steps)


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The neighbourhood of one model."""

    label: str  # the model
    own: Rates  # its rates as it is
    reestimated: Rates  # its rates with BatchNorm statistics estimated anew
    tuned: float  # relative distance of the fine-tuned model, the red star at (0, tuned)
    tuned_rates: Rates  # its rates
    cosine: float  # of the angle between the directions
    # WSR at every node, one row for each value along d_FT; interpolated where not measured
    wsr: tuple[tuple[float, ...], ...]
    ba: tuple[tuple[float, ...], ...]  # BA, likewise
    measured: tuple[tuple[bool, ...], ...]  # which nodes were measured
    adv: FirstFall  # where WSR first falls along d_adv
    ft: FirstFall  # where WSR first falls along d_FT
    passes: int  # images passed forward
    seconds: float  # time of this session

    @property
    def removed(self) -> float:
        """Share of nodes without the mark (WSR below 50 %) that keep the model's BA to within 5 points."""
        pairs = [pair for rows in zip(self.wsr, self.ba, strict=True) for pair in zip(*rows, strict=True)]
        return sum(wsr < 0.5 and ba >= self.own.ba - _NEAR for wsr, ba in pairs) / len(pairs)


@dataclass(frozen=True, kw_only=True)
class Landscape(Analysis):
    """The neighbourhoods of some models, on the same axes."""

    figure: ClassVar[str] = "landscape"
    settings: LandscapeSettings
    planes: tuple[Plane, ...]


class Vicinity:
    """A model that can be moved in the plane of its two directions and measured there."""

    def __init__(self, subject: MarkedModel, settings: LandscapeSettings) -> None:
        self.probe = Probe(
            subject, images=settings.images, marked=settings.marked, statistics=settings.statistics, seed=settings.seed
        )
        self.model = subject.copy()
        self.own = self.probe.rates(self.model)
        self.adv = removal_direction(subject, self.model, settings.gradient, settings.norm)
        self.ft, self.tuned, tuned = tuning_direction(
            subject.model, subject.attacker, steps=settings.tune_steps, lr=settings.tune_lr, seed=settings.seed,
            normalize=subject.normalize,
        )  # fmt: skip
        self.tuned_rates = self.probe.rates(tuned)
        self.weights: list[Tensor] = weights_of(self.model)
        self.cosine = cosine(self.adv, self.ft)

    def rates(self, a: float, b: float) -> Rates:
        """Return the rates at (a, b), with BatchNorm statistics estimated there."""
        with perturbed(self.weights, combined(self.adv, self.ft, a, b)):
            return self.probe.neighbour(self.model)


def landscape(
    subjects: Sequence[MarkedModel], settings: LandscapeSettings | None = None, folder: str | Path | None = None
) -> Landscape:
    """Measure WSR and BA around each model, on the same axes.

    Measured points are kept in ``folder``; a landscape that was interrupted is continued from them.
    """
    chosen = settings or LandscapeSettings()
    if not subjects:
        raise InputError("a landscape needs at least one model.")
    identity = {"settings": chosen.to_json(), "subjects": [subject.identity() for subject in subjects]}
    points = PointLog(folder, {"figure": Landscape.figure, **identity})
    planes = [_plane(number, subject, chosen, points) for number, subject in enumerate(subjects)]
    return Landscape(settings=chosen, planes=tuple(planes))


def _plane(number: int, subject: MarkedModel, settings: LandscapeSettings, points: PointLog) -> Plane:
    began = time.monotonic()
    vicinity = Vicinity(subject, settings)
    first, second = settings.axes
    seen: set[str] = set()  # points asked for, in this session or an earlier one
    with Progress(f"landscape of {subject.label}", settings.steps**2) as bar:

        def measured(a: float, b: float) -> Rates:
            """Measure a point once; later sessions read it back."""
            key = f"{number}/{a!r}/{b!r}"
            if key not in points:
                points[key] = {"adv": a, "ft": b, **vars(vicinity.rates(a, b))}
            if key not in seen:
                seen.add(key)
                bar.advance(note=f"{a:+.3f} {b:+.3f}" if bar.due else None)
            return Rates(points[key]["ba"], points[key]["wsr"])

        def nodes(wanted: Sequence[Node]) -> dict[Node, tuple[float, float]]:
            found = {(j, i): measured(first[i], second[j]) for j, i in wanted}
            return {node: (rates.wsr, rates.ba) for node, rates in found.items()}

        known, cells = refined(first_cells(settings.steps, settings.stride), nodes, settings.tolerance)
        # The model itself stands in the middle; what re-estimation alone changes is kept apart.
        known[second.index(0.0), first.index(0.0)] = (vicinity.own.wsr, vicinity.own.ba)
        every = filled(known, cells)
        falls = [
            first_fall(along, step=values[1] - values[0], reach=settings.reach * (values[-1] - values[0]))
            for along, values in ((lambda a: measured(a, 0.0), first), (lambda b: measured(0.0, b), second))
        ]
        bar.line(f"landscape of {subject.label}: {len(seen)} points in {time.monotonic() - began:.0f} s")
    size = range(settings.steps)
    return Plane(
        label=subject.label, own=vicinity.own, reestimated=measured(0.0, 0.0), tuned=vicinity.tuned,
        tuned_rates=vicinity.tuned_rates, cosine=vicinity.cosine,
        wsr=tuple(tuple(every[j, i][0] for i in size) for j in size),
        ba=tuple(tuple(every[j, i][1] for i in size) for j in size),
        measured=tuple(tuple((j, i) in known for i in size) for j in size),
        adv=falls[0], ft=falls[1], passes=len(seen) * vicinity.probe.passes, seconds=time.monotonic() - began,
    )  # fmt: skip
