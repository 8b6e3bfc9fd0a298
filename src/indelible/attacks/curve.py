"""One attack, many strengths: what a threshold costs the attacker, and which one the attacker takes.

Fine-pruning has a rate, ANP a threshold, MCR a point t on its path. The attacker sees only the accuracy on images of
their own that the attack was not fitted to; :func:`choose` takes the strongest value that costs no more than a budget
there. Whoever holds the key can go over the same curve afterwards with :func:`evaluate_curve`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from indelible.base.errors import InputError, UnknownNameError

Direction = Literal["high", "low"]
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The models that one attack could have returned.

    Attributes:
        name: What is varied: ``"rate"``, ``"threshold"`` or ``"t"``.
        values: Its values, in order.
        accuracies: Accuracy of the model at each value on the attacker's held-out images, as fractions.
        chosen: The value that the attack took.
        build: Returns an ordinary model at a value; the same one every time.
    """

    name: str
    values: tuple[float, ...]
    accuracies: tuple[float, ...]
    chosen: float
    build: Callable[[float], nn.Module] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.values, self.accuracies)
        if self.chosen not in self.values:
            raise InputError(f"the chosen {self.name} {self.chosen} is not among the curve's values {self.values}.")

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain JSON values, without its models."""
        return {
            "name": self.name,
            "values": list(self.values),
            "accuracies": list(self.accuracies),
            "chosen": self.chosen,
        }


def choose(
    values: Sequence[float],
    accuracies: Sequence[float],
    reference: float,
    ba_drop: float,
    strongest: Direction = "high",
) -> float:
    """Return the strongest value whose accuracy is within the budget; failing that, the most accurate one.

    ``strongest`` says whether high or low values remove more; it also decides between equally accurate ones.
    """
    _check(values, accuracies)
    if strongest not in {"high", "low"}:
        raise UnknownNameError("direction", strongest, ("high", "low"))
    # Rates are counts divided by a count: a drop of exactly the budget must not be lost to rounding.
    affordable = [
        value for value, found in zip(values, accuracies, strict=True) if found >= reference - ba_drop - _ROUNDING
    ]
    best = max(accuracies)
    among = affordable or [value for value, found in zip(values, accuracies, strict=True) if found == best]
    return max(among) if strongest == "high" else min(among)


def evaluate_curve(curve: Curve, evaluate: Callable[[nn.Module], Mapping[str, float]]) -> list[dict[str, Any]]:
    """Measure the model at every value of a curve: for the evaluator, never for the attacker.

    ``evaluate`` returns the rates of a model, such as ``{"ba": 0.9, "wsr": 0.4}``. The result has one row per value:
    ``value``, ``accuracy`` (the attacker's, held-out), ``chosen`` and the rates.
    """
    return [
        {"value": value, "accuracy": accuracy, "chosen": value == curve.chosen, **evaluate(curve.build(value))}
        for value, accuracy in zip(curve.values, curve.accuracies, strict=True)
    ]


def _check(values: Sequence[float], accuracies: Sequence[float]) -> None:
    if not values or len(values) != len(accuracies):
        raise InputError(f"a curve needs one accuracy for each of its values, got {len(accuracies)} for {len(values)}.")
