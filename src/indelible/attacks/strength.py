"""What attacks share that change weights at one strength: try all strengths, take the strongest within a budget.

The attacker measures accuracy on images of their own and nothing else. ``build`` of the curve makes the model of any
strength again, for whoever holds the key.
"""

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from indelible.attacks.base import Removal
from indelible.attacks.curve import Curve, Direction, choose
from indelible.base.errors import InputError
from indelible.data.images import Data
from indelible.nn.layers import normalisation_parameters

__all__ = ["change_at_budget", "weight_matrices"]


def change_at_budget(
    job: Removal,
    change: Callable[[nn.Module, float], None],
    *,
    name: str,
    values: Sequence[float],
    given: float | None,
    ba_drop: float,
    strongest: Direction = "high",
    judges: Data | None = None,
) -> float:
    """Change ``job.model`` at the strength chosen, keep the curve in ``job.curve``, and return that strength.

    Args:
        job: The attack under way; its model is still the stolen one.
        change: Changes a copy of the stolen model in place, at a strength; the same way every time.
        name: What varies along the curve.
        values: Strengths to try.
        given: Take this one, whatever it costs; None leaves the choice to the budget.
        ba_drop: Accuracy that may be lost, as a fraction.
        strongest: Whether high or low values wash more.
        judges: Images that nothing was fitted to; by default all of the attacker's.
    """
    images, stolen = judges or job.data, copy.deepcopy(job.model)

    def build(value: float) -> nn.Module:
        changed = copy.deepcopy(stolen)
        change(changed, value)
        return changed

    tried = tuple(sorted({*values, *(() if given is None else (given,))}))
    accuracies = tuple(job.accuracy(build(value), images) for value in tried)
    chosen = given
    if chosen is None:
        chosen = choose(tried, accuracies, job.accuracy(stolen, images), ba_drop, strongest)
    job.curve = Curve(name=name, values=tried, accuracies=accuracies, chosen=chosen, build=build)
    change(job.model, chosen)
    return chosen


def weight_matrices(model: nn.Module) -> list[tuple[Tensor, int]]:
    """Return every weight of two or more axes outside normalisation layers, with the axis of its outputs.

    That axis is the first, but for transposed convolutions, which have it second. Biases and the affine parameters of
    normalisation layers are few and are left alone, as is usual in pruning and in quantisation.
    """
    spared = {id(weight) for weight in normalisation_parameters(model)}
    turned = {id(layer.weight) for layer in model.modules() if isinstance(layer, _ConvTransposeNd)}
    found: list[tuple[Tensor, int]] = [
        (weight, 1 if id(weight) in turned else 0)
        for weight in model.parameters()
        if weight.ndim >= 2 and weight.is_floating_point() and id(weight) not in spared
    ]
    if not found:
        raise InputError(
            f"{type(model).__name__} has no weight of two or more axes outside normalisation layers. Choose an attack "
            "that needs none, such as ft."
        )
    return found
