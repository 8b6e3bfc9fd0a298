"""SAU: its losses on fixed logits, the search on a model of one pixel, a step against a slow reference."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import SharedAdversarialUnlearning
from indelible.attacks.removal_attack import attack
from indelible.attacks.sau import SharedUnlearning, jensen_shannon, search_loss, unlearning_loss
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.conftest import TinyNet, stripes

LOG2, LOG4 = math.log(2), math.log(4)


def test_the_papers_settings() -> None:
    value = SharedAdversarialUnlearning()
    assert (value.eps, value.step, value.steps, value.adversarial, value.shared) == (0.2, 0.2, 5, 0.01, 1.0)
    assert (value.weight, value.rounds * value.epochs, value.lr, value.batch_size) == (1.0, 25, 1e-4, 256)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def logits(*chances: float) -> torch.Tensor:
    return torch.tensor([chances]).log()


def test_jensen_shannon_by_hand() -> None:
    """p = (3/4, 1/4), q = (1/4, 3/4), middle (1/2, 1/2): each half is 3/4 log 3/2 + 1/4 log 1/2."""
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert jensen_shannon(logits(0.75, 0.25), logits(0.25, 0.75)).item() == pytest.approx(expected)
    assert jensen_shannon(logits(0.2, 0.8), logits(0.2, 0.8)).item() == pytest.approx(0.0, abs=1e-7)
    # Quite apart: log 2, and no NaN where a chance is zero to the last bit.
    assert jensen_shannon(torch.tensor([[300.0, 0.0]]), torch.tensor([[0.0, 300.0]])).item() == pytest.approx(LOG2)


def test_the_search_loss_on_fixed_logits() -> None:
    """Three images of class 0, which both models answer without a change.

    1. Both are fooled into class 1: solved, nothing counts.
    2. The model is fooled (1), the stolen one is not (p_0 = 3/4): CE of the stolen one, and JS.
    3. Neither is fooled, both (3/4, 1/4): both CE, and a JS of zero.
    """
    own = torch.cat([logits(0.25, 0.75), logits(0.25, 0.75), logits(0.75, 0.25)])
    stolen = torch.cat([logits(0.1, 0.9), logits(0.75, 0.25), logits(0.75, 0.25)])
    zeros = torch.zeros(3, dtype=torch.int64)
    apart = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    missed = -math.log(0.75)
    loss = search_loss(own, stolen, zeros, zeros, zeros, adversarial=0.1, shared=2.0)
    assert loss.item() == pytest.approx((2.0 * apart - 0.1 * (missed + 2 * missed) / 2) / 3, abs=1e-6)


def test_the_unlearning_loss_on_fixed_logits() -> None:
    """Four images of class 0; -log(1 - p_k) counts where the stolen model is fooled into k.

    1. Stolen: 1, the model has p_1 = 3/4: log 4.
    2. Stolen: 2, the model has p_2 = 1/2: log 2.
    3. Stolen: 0, not fooled: nothing.
    4. Stolen: 1 without the change too, a plain mistake: nothing.
    """
    model = torch.cat([logits(0.125, 0.75, 0.125), logits(0.25, 0.25, 0.5), logits(0.9, 0.05, 0.05),
                       logits(0.1, 0.8, 0.1)])  # fmt: skip
    stolen = 5.0 * torch.eye(3)[[1, 2, 0, 1]]
    loss = unlearning_loss(model, stolen, torch.zeros(4, dtype=torch.int64), torch.tensor([0, 0, 0, 1]))
    assert loss.item() == pytest.approx((LOG4 + LOG2) / 4, abs=1e-6)
    # Sure of the wrong class: a large loss, but a finite one, with a finite gradient.
    sure = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)
    large = unlearning_loss(sure, stolen[:1], torch.tensor([0]), torch.tensor([0]))
    large.backward()
    assert large.item() == pytest.approx(200.0 - LOG2)
    assert sure.grad is not None
    assert sure.grad[0].tolist() == pytest.approx([-0.5, 1.0, -0.5])


class Pixel(nn.Module):
    """Class 1 when the one pixel is above ``at``."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(at))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        above = 10.0 * (images.flatten(1) - self.at)
        return torch.cat([-above, above], 1)


def test_the_search_finds_what_fools_both() -> None:
    """At 0.55, above the border of both; the change starts at +0.2 and goes down by two steps until both are fooled."""
    model, stolen = Pixel(0.5), Pixel(0.5)
    pixels, labels = torch.full((1, 1, 1, 1), 0.55), torch.tensor([1])
    objective = SharedUnlearning(stolen, SharedAdversarialUnlearning(steps=2), None)
    change = objective._search(objective._answers(model), objective._answers(stolen), pixels, labels, labels, labels)
    assert change.item() == pytest.approx(-0.2)
    # At 0.4, below both, the start at +0.2 fools both already: solved, and it stays.
    below, zero = torch.full((1, 1, 1, 1), 0.4), torch.tensor([0])
    stays = objective._search(objective._answers(model), objective._answers(stolen), below, zero, zero, zero)
    assert stays.item() == pytest.approx(0.2)


def test_a_step_equals_the_slow_reference(net: TinyNet) -> None:
    data = stripes(8)
    images, labels = data.images.float() / 255, data.labels
    method = SharedAdversarialUnlearning(steps=2, weight=3.0)
    torch.manual_seed(3)
    stolen, trained = TinyNet().eval(), copy.deepcopy(net).train()
    objective = SharedUnlearning(copy.deepcopy(stolen), method, None)
    loss = objective.backward(Step(trained, images, labels, 0, 0, lambda value: value.backward()))
    assert objective.passes(8) == 8 * (2 + 4 + 3)
    assert trained.training

    twin = copy.deepcopy(net).eval()
    own, first = twin(images).argmax(1), stolen(images).argmax(1)
    change = torch.full_like(images, 0.2)
    for _ in range(2):
        change.requires_grad_()
        found = search_loss(twin(images + change), stolen(images + change), labels, own, first,
                            adversarial=0.01, shared=1.0)  # fmt: skip
        (slope,) = torch.autograd.grad(found, [change])
        change = (change - 0.2 * slope.sign()).clamp(-0.2, 0.2).detach()
    chances, wrong = twin(images + change).softmax(1), stolen(images + change).argmax(1)
    rows = [
        -torch.log(1 - chances[row, wrong[row]])
        for row in range(8)
        if wrong[row] != labels[row] and wrong[row] != first[row]
    ]
    assert rows, "the reference needs an image that fools the stolen model"
    expected = F.cross_entropy(twin(images), labels) + 3.0 * torch.stack(rows).sum() / 8
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    for weight, other in zip(trained.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, other.grad, rtol=1e-3, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(trained.buffers(), net.buffers(), strict=True))


def test_passes_and_curve(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, "sau", scale="cpu", device="cpu")
    assert attacked.curve is not None
    assert (attacked.curve.name, attacked.curve.values) == ("rounds", (1, 2))
    assert attacked.record.images == 2 * 9 * 288 + 3 * 32


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("sau", network, rounds=1, epochs=1, steps=1, batch_size=4)


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"eps must lie in \(0, 1\], got 2"):
        SharedAdversarialUnlearning(eps=2.0)
    with pytest.raises(InputError, match="one protocol"):
        SharedAdversarialUnlearning(protocol="paper")
