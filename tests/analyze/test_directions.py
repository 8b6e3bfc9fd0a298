"""Directions: unit relative length, the gradient by finite differences, places in the plane by hand."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.analyze.directions import (
    adversarial_direction,
    combined,
    cosine,
    relative_length,
    tuning_direction,
    weights_of,
)
from indelible.base.errors import InputError
from tests.analyze.marked_models import marked_subject, plain_subject


def _watermark(count: int = 24) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    subject = plain_subject()
    samples = subject.embedded(count)
    batches = subject.batches(samples.images, 10)
    return subject.copy(), list(batches), list(samples.labels.split([len(batch) for batch in batches]))


@pytest.mark.parametrize("norm", ["global", "tensor"])
def test_d_adv_has_unit_relative_length(norm: str) -> None:
    model, batches, labels = _watermark()
    before = copy.deepcopy(model.state_dict())
    direction = adversarial_direction(model, batches, labels, norm)  # type: ignore[arg-type]
    assert math.isclose(relative_length(weights_of(model), direction), 1.0, rel_tol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_d_adv_is_the_gradient_of_the_whole_watermark_loss() -> None:
    """Not of the mean of unequal batches (10, 10 and 4): compared with one pass over all images."""
    model, batches, labels = _watermark()
    direction = adversarial_direction(model, batches, labels)
    loss = F.cross_entropy(model(torch.cat(batches)), torch.cat(labels))
    gradient = torch.autograd.grad(loss, list(model.parameters()))
    assert math.isclose(cosine(direction, gradient), 1.0, rel_tol=1e-5)
    small = [1e-4 * part for part in direction]
    with torch.no_grad():
        for weight, part in zip(model.parameters(), small, strict=True):
            weight.add_(part)
        assert F.cross_entropy(model(torch.cat(batches)), torch.cat(labels)) > loss


def test_d_ft_leads_to_the_fine_tuned_model() -> None:
    subject = marked_subject()
    direction, distance, tuned = tuning_direction(subject.model, subject.attacker, steps=5, lr=0.05)
    weights = weights_of(subject.model)
    assert math.isclose(relative_length(weights, direction), 1.0, rel_tol=1e-5)
    for start, part, end in zip(weights, direction, tuned.parameters(), strict=True):
        torch.testing.assert_close(start + distance * part, end, rtol=1e-4, atol=1e-5)
    again, same, _ = tuning_direction(subject.model, subject.attacker, steps=5, lr=0.05)
    assert same == distance
    assert all(torch.equal(one, other) for one, other in zip(direction, again, strict=True))


def test_the_plane_by_hand() -> None:
    """Directions (5, 0, 0) and (3, 4, 0), both as long as the weights."""
    first, second = [torch.tensor([5.0, 0.0]), torch.tensor([0.0])], [torch.tensor([3.0, 4.0]), torch.tensor([0.0])]
    assert math.isclose(cosine(first, second), 0.6)
    assert combined(first, second, 1.0, 2.0)[0].tolist() == [11.0, 8.0]


def test_what_has_no_direction_is_refused() -> None:
    model, batches, labels = _watermark()
    for weight in model.parameters():
        weight.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable parameter"):
        adversarial_direction(model, batches, labels)
    subject = plain_subject()
    with pytest.raises(InputError, match="at least 1 step, got 0"):
        tuning_direction(subject.model, subject.attacker, steps=0)


def test_a_saturated_loss_shows_no_direction() -> None:
    class Sure(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            return 1e4 * self.weight * torch.eye(4)[0].expand(len(images), 4)

    with pytest.raises(InputError, match="no direction"):
        adversarial_direction(Sure(), [torch.zeros(2, 3, 8, 8)], [torch.zeros(2, dtype=torch.int64)])
