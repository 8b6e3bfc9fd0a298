"""Two directions away from a marked model, and how far along them a neighbour lies.

Paper: Gan et al., "Towards Robust Model Watermark via Reducing Parametric Vulnerability", ICCV 2023, Appendix A:

    theta = theta_w + a * ||theta_w|| * d_adv / ||d_adv|| + b * ||theta_w|| * d_FT / ||d_FT||

| symbol | here | default | source |
|---|---|---|---|
| d_adv | :func:`adversarial_direction`, the gradient of L(theta, D_w) | with running statistics | App. A |
| d_FT | :func:`tuning_direction`, theta_FT - theta_w | 40 iterations of SGD at 0.05 | App. A |
| its momentum, decay, batch | those of the attack FT | 0.9, 5e-4, 128 | the authors' code |
| norm | over all trainable parameters together | ``"global"`` | App. A; ``"tensor"``: as in the authors' APP |
| a, b | relative distances | | Section 1 |

Either direction is returned with unit relative length: ||d|| = ||theta_w||. They are not made orthogonal, as in the
paper; the cosine between them is part of every result.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.analyze.marked_model import MarkedModel
from indelible.base.errors import InputError
from indelible.data.augment import Normalization
from indelible.data.batches import Batches
from indelible.data.images import Data
from indelible.nn.outputs import logits_of
from indelible.nn.perturbation import Norm, adversarial_delta
from indelible.train import Schedule, TrainSettings, fit

Tensors = Sequence[Tensor]


def weights_of(model: nn.Module) -> list[Tensor]:
    """Return theta: the trainable parameters, in order."""
    found: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
    if not found:
        raise InputError("the model has no trainable parameter: set requires_grad on what may change.")
    return found


def _inner(one: Tensors, other: Tensors) -> Tensor:
    """Return the inner product over all tensors, in double precision."""
    parts = [(a.detach().double() * b.detach().double()).sum() for a, b in zip(one, other, strict=True)]
    return torch.stack(parts).sum()


def relative_length(weights: Tensors, delta: Tensors) -> float:
    """Return ||delta|| / ||theta||."""
    return float((_inner(delta, delta) / _inner(weights, weights)).sqrt())


def cosine(one: Tensors, other: Tensors) -> float:
    """Return the cosine of the angle between two directions."""
    return float(_inner(one, other) / (_inner(one, one) * _inner(other, other)).sqrt())


def combined(first: Tensors, second: Tensors, a: float, b: float) -> list[Tensor]:
    """Return ``a * first + b * second``."""
    return [a * one + b * other for one, other in zip(first, second, strict=True)]


def adversarial_direction(
    model: nn.Module, batches: Sequence[Tensor], labels: Sequence[Tensor], norm: Norm = "global"
) -> list[Tensor]:
    """Return d_adv, of unit relative length: the gradient of the mean watermark loss, which erases the mark.

    Args:
        model: In evaluation mode; its weights are left alone.
        batches: Watermark images as the model takes them, float (n, C, H, W).
        labels: int64 (n,) of each batch: what a marked model answers.
        norm: ``"global"``, or ``"tensor"`` for each parameter tensor by itself.
    """
    weights = weights_of(model)
    total = sum(map(len, labels))
    gradient = [torch.zeros_like(weight) for weight in weights]
    for images, answers in zip(batches, labels, strict=True):
        loss = F.cross_entropy(logits_of(model(images)), answers, reduction="sum") / total
        parts = torch.autograd.grad(loss, weights, materialize_grads=True)
        gradient = [held + part for held, part in zip(gradient, parts, strict=True)]
    length = _inner(gradient, gradient).sqrt()
    if not bool(length > 0) or not bool(length.isfinite()):
        raise InputError(
            f"the gradient of the watermark loss has the length {float(length):g}: it shows no direction. The model "
            "may be saturated or damaged; check its WSR with `indelible verify`."
        )
    return adversarial_delta(weights, gradient, 1.0, norm)


def removal_direction(subject: MarkedModel, model: nn.Module, count: int, norm: Norm = "global") -> list[Tensor]:
    """Return d_adv of a subject's model on ``count`` of the samples that were embedded."""
    known = subject.embedded(count)
    batches, labels = zip(*subject.labelled_batches(known.images, known.labels), strict=True)
    return adversarial_direction(model, batches, labels, norm)


def tuning_settings(data: Data, *, steps: int, lr: float, normalize: Normalization | None = None) -> TrainSettings:
    """Return how to fine-tune for ``steps`` iterations: the attack FT at a constant rate."""
    if steps < 1:
        raise InputError(f"fine-tuning needs at least 1 step, got {steps}.")
    ordinary = TrainSettings(lr=lr, schedule=Schedule(), normalize=normalize, max_steps=steps)
    rounds = -(-steps // Batches(data=data, batch_size=ordinary.batch_size, seed=0).steps)
    return ordinary.but(epochs=rounds, evaluate_every=rounds)


def tuning_direction(
    model: nn.Module, data: Data, *, steps: int = 40, lr: float = 0.05, seed: int = 0,
    normalize: Normalization | None = None,
) -> tuple[list[Tensor], float, nn.Module]:  # fmt: skip
    """Fine-tune a copy of ``model`` on clean images.

    Returns:
        d_FT of unit relative length; the relative distance of the fine-tuned model; that model.
    """
    tuned = copy.deepcopy(model)
    # Where the model is: "auto" could move it away from the images it is measured with.
    place = next(tuned.parameters()).device
    settings = tuning_settings(data, steps=steps, lr=lr, normalize=normalize)
    fit(tuned, data, settings, seed=seed, device=str(place), phase="fine-tuning")
    weights = weights_of(model)
    with torch.no_grad():
        delta = [after - before for after, before in zip(weights_of(tuned), weights, strict=True)]
    distance = relative_length(weights, delta)
    if distance == 0:
        raise InputError(f"fine-tuning at the rate {lr:g} did not change the weights. Use a larger rate.")
    return adversarial_delta(weights, delta, 1.0, "global"), distance, tuned.eval()
