"""Attacks whose strengths each take a training: try them, keep the models, take the strongest within the budget.

Two shapes of one thing. :func:`try_strengths` trains one model for each value of a list, all from the stolen one.
:func:`try_rounds` trains one model round by round; the number of rounds is the strength. Both judge by a tenth of the
attacker's images that no training sees, and both leave the curve in ``job.curve``.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from indelible.attacks.base import Removal
from indelible.attacks.curve import Curve, choose
from indelible.base.errors import InputError
from indelible.data.images import Data

__all__ = ["settle", "try_rounds", "try_strengths"]

State = Mapping[str, Tensor]


def settle(
    job: Removal, name: str, values: Sequence[float], accuracies: Sequence[float], build: Callable[[float], nn.Module],
    *, reference: float, ba_drop: float, fixed: float | None = None,
) -> float:  # fmt: skip
    """Choose a strength, leave the curve in the job, and give its model the chosen weights.

    Args:
        job: The attack under way; ``job.model`` is changed.
        name: What is varied.
        values: What could be chosen, from mild to strong.
        accuracies: Held-out accuracy at each value.
        build: Returns the model at a value.
        reference: Held-out accuracy of the stolen model.
        ba_drop: How much of it may be lost, as a fraction.
        fixed: Take this value instead of choosing one.

    Returns:
        The value that was taken.
    """
    chosen = choose(values, accuracies, reference, ba_drop) if fixed is None else fixed
    job.curve = Curve(name=name, values=tuple(values), accuracies=tuple(accuracies), chosen=chosen, build=build)
    job.note(**{name: chosen}, accuracy=reference)
    job.model.load_state_dict(build(chosen).state_dict())
    return chosen


def try_strengths(
    job: Removal, name: str, values: Sequence[float], train: Callable[[nn.Module, float, Data], None], *,
    ba_drop: float, fixed: float | None = None,
) -> None:  # fmt: skip
    """Train a copy of the stolen model at each strength and settle for one; a fixed one is trained on all images.

    Args:
        job: The attack under way.
        name: What is varied.
        values: Strengths, from mild to strong. One that makes the weights NaN or infinite ends the list.
        train: Takes a copy of the stolen model, a strength and images; changes the copy.
        ba_drop: How much of the held-out accuracy may be lost, as a fraction.
        fixed: Do not choose: take this strength.
    """
    if fixed is not None:
        train(job.model, fixed, job.data)
        job.note(**{name: fixed})
        return
    fitting, held = job.parts()
    stolen, kept = copy.deepcopy(job.model), dict[float, State]()
    reference, accuracies = job.accuracy(stolen, held), list[float]()
    for value in values:
        model = copy.deepcopy(stolen)
        try:
            train(model, value, fitting)
            accuracies.append(job.accuracy(model, held))
        except InputError:
            # A rate too large for this network is no reason to lose the milder models.
            if not kept or _finite(model):
                raise
            job.note(diverged=value)
            break
        kept[value] = _state(model)
    settle(
        job, name, tuple(kept), accuracies, lambda value: _with(stolen, kept[value]), reference=reference,
        ba_drop=ba_drop,
    )  # fmt: skip


def try_rounds(
    job: Removal, rounds: int, train: Callable[[nn.Module, int, Data], None], *, ba_drop: float
) -> None:  # fmt: skip
    """Train a copy of the stolen model round by round and settle for as many rounds as the budget allows.

    Args:
        job: The attack under way.
        rounds: How many.
        train: Takes the model, the round's number from 1 on, and images; changes the model.
        ba_drop: How much of the held-out accuracy may be lost, as a fraction.
    """
    fitting, held = job.parts()
    stolen, kept = copy.deepcopy(job.model), dict[float, State]()
    reference, accuracies = job.accuracy(stolen, held), list[float]()
    model = copy.deepcopy(stolen)
    for number in range(1, rounds + 1):
        train(model, number, fitting)
        accuracies.append(job.accuracy(model, held))
        kept[number] = _state(model)
    settle(
        job, "rounds", tuple(kept), accuracies, lambda number: _with(stolen, kept[number]), reference=reference,
        ba_drop=ba_drop,
    )  # fmt: skip


def _state(model: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _with(stolen: nn.Module, state: State) -> nn.Module:
    model = copy.deepcopy(stolen)
    model.load_state_dict(state)
    return model


def _finite(model: nn.Module) -> bool:
    return all(
        bool(torch.isfinite(value).all()) for value in model.state_dict().values() if value.is_floating_point()
    )  # fmt: skip
