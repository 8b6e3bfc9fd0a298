"""The frontier: what a variant of APP costs against what it keeps of the watermark, from a benchmark's records.

Cost is image passes relative to plain training, by the settings of each model: 1 + extra rows / batch size
(:meth:`~indelible.embed.app.AdversarialPerturbation.extra_rows`). Seconds follow it closely (docs/speed.md) and are not
the same on any two machines. Beside each variant stands its control: eps 0 at the same exposure, that is the same rows,
clean rows, steps between and share of the training. What the perturbation itself gives is the distance between the two.

Kinds of marks and seeds are put together: a spot is their mean, with the lowest and the highest. Where not all spots
are of the same kinds and seeds, the result says so.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from indelible.analyze.document import Analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.embed.app import AdversarialPerturbation

__all__ = ["Frontier", "Spot", "frontier"]

Cell = Mapping[str, Any]
_MODEL = ("dataset", "architecture", "kind", "method", "seed")
_EXPOSURE = ("rows", "clean_rows", "clean_bn", "every", "after", "alpha")
_BASE = "vanilla"


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One method, before and after the attack; rates are fractions.

    Attributes:
        label: What the preset calls it.
        cost: Image passes relative to plain training.
        wsr: Mean WSR after the attack.
        low: Lowest WSR after the attack.
        high: Highest WSR after the attack.
        ba: Mean accuracy before the attack.
        ba_after: Mean accuracy after the attack.
        runs: Models, over kinds and seeds.
        over: Those kinds and seeds, such as ``"content 0"``.
        control: Label of the control at the same exposure; None for a control, and where there is none.
        perturbed: Whether weights are perturbed: False for controls and other methods.
    """

    label: str
    cost: float
    wsr: float
    low: float
    high: float
    ba: float
    ba_after: float
    runs: int
    over: tuple[str, ...]
    control: str | None
    perturbed: bool


@dataclass(frozen=True, kw_only=True)
class Frontier(Analysis):
    """Cost against robustness.

    Attributes:
        attack: The attack after which WSR is taken.
        spots: The methods, the cheapest first.
    """

    figure: ClassVar[str] = "frontier"
    attack: str
    spots: tuple[Spot, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a method."""
        names = [name for name in Spot.__dataclass_fields__ if name != "over"]
        return [
            {**{name: getattr(spot, name) for name in names}, "over": ", ".join(spot.over)} for spot in self.spots
        ]  # fmt: skip

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
            words += f"{self.attack.upper()} ({100 * spot.low:.1f} to {100 * spot.high:.1f}, {models}), "
            words += f"BA {100 * spot.ba:.1f} % before"
            if spot.control is not None:
                words += f"; with eps 0 at the same exposure WSR {100 * known[spot.control].wsr:.1f} %"
            said.append(words + ".")
        if len({spot.over for spot in self.spots}) > 1:
            over = "; ".join(f"{spot.label} {', '.join(spot.over)}" for spot in self.spots)
            said.append(f"Not all are of the same kinds and seeds: {over}.")
        return said


def frontier(cells: Iterable[Cell], *, attack: str = "ft", kinds: Collection[str] = ()) -> Frontier:
    """Return cost and robustness of every method in a benchmark's records.

    Args:
        cells: Records, as :func:`~indelible.analyze.curves.cells_of` reads them.
        attack: The attack after which WSR is taken; its label in the preset.
        kinds: Only these kinds of marks; all if there are none.
    """
    given = list(cells)
    known = dict.fromkeys(cell["kind"] for cell in given)
    for kind in kinds:
        if kind not in known:
            raise UnknownNameError("kind of mark in these records", kind, known)
    chosen = [cell for cell in given if not kinds or cell["kind"] in kinds]
    models = {_name(cell): cell for cell in chosen if cell.get("attack") is None}
    after = {_name(cell): cell for cell in chosen if cell.get("attack") == attack}
    labels = list(dict.fromkeys(cell["method"] for name, cell in models.items() if name in after))
    if not labels:
        raise InputError(
            f"no method has both a model and the attack {attack!r} in these records. Run the preset's cells first: "
            "indelible bench run app-fast-cpu"
        )
    found = {label: _cells(label, models, after) for label in labels}
    spots = [_spot(label, found) for label in labels]
    return Frontier(attack=attack, spots=tuple(sorted(spots, key=lambda spot: spot.cost)))


def _name(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell[part] for part in _MODEL)


def _cells(
    label: str, models: Mapping[tuple[Any, ...], Cell], after: Mapping[tuple[Any, ...], Cell]
) -> list[tuple[Cell, Cell]]:
    return [
        (model, after[name]) for name, model in models.items() if model["method"] == label and name in after
    ]  # fmt: skip


def _method(pairs: Sequence[tuple[Cell, Cell]]) -> AdversarialPerturbation | None:
    settings = pairs[0][0]["settings"]
    return AdversarialPerturbation.of(settings["method_settings"]) if settings["method"] == "app" else None


def _spot(label: str, found: Mapping[str, Sequence[tuple[Cell, Cell]]]) -> Spot:
    pairs, method = found[label], _method(found[label])
    cost = 1.0
    if method is not None:
        cost += method.extra_rows() / pairs[0][0]["settings"]["train"]["batch_size"]
    elif pairs[0][0]["settings"]["method"] != _BASE:
        raise InputError(
            f"the frontier compares variants of APP with Vanilla, but {label!r} is neither. Choose cells with --only."
        )
    kept = [float(attacked["measured"]["wsr"]) for _, attacked in pairs]
    return Spot(
        label=label, cost=cost, wsr=fmean(kept), low=min(kept), high=max(kept),
        ba=fmean(float(model["measured"]["ba"]) for model, _ in pairs),
        ba_after=fmean(float(attacked["measured"]["ba"]) for _, attacked in pairs), runs=len(pairs),
        over=tuple(sorted(f"{model['kind']} {model['seed']}" for model, _ in pairs)),
        control=_control(method, found), perturbed=method is not None and method.eps > 0,
    )  # fmt: skip


def _control(
    method: AdversarialPerturbation | None, found: Mapping[str, Sequence[tuple[Cell, Cell]]]
) -> str | None:  # fmt: skip
    if method is None or method.eps == 0:
        return None
    for label, pairs in found.items():
        other = _method(pairs)
        if other is not None and other.eps == 0 and all(getattr(method, n) == getattr(other, n) for n in _EXPOSURE):
            return label
    return None
