"""FT-SAM: the adaptive perturbation of two weights by hand, a step against a slow reference, the choice of rho."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import SharpnessAwareFineTuning
from indelible.attacks.ft_sam import RHOS, SharpnessAware, adaptive_delta
from indelible.attacks.removal_attack import attack
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = SharpnessAwareFineTuning()
    assert (value.rho, RHOS, value.epochs, value.lr) == (None, (0.5, 2.0, 8.0), 25, 0.01)
    assert (value.momentum, value.weight_decay, value.label_smoothing) == (0.9, 5e-4, 0.1)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_the_perturbation_of_two_weights() -> None:
    """w = (1, -2), g = (3, 2): |w| g = (3, 4) of norm 5, w^2 g = (3, 8); times rho / 5 with rho 0.5: (0.3, 0.8)."""
    weights, gradients = [torch.tensor([1.0]), torch.tensor([[-2.0]])], [torch.tensor([3.0]), torch.tensor([[2.0]])]
    first, second = adaptive_delta(weights, gradients, 0.5)
    assert first.tolist() == pytest.approx([0.3])
    assert second[0].tolist() == pytest.approx([0.8])
    # In the weights' own measure its length is rho: |(0.3 / 1, 0.8 / 2)| = 0.5.
    assert float(torch.cat([first / 1.0, second[0] / 2.0]).norm()) == pytest.approx(0.5)
    nothing = adaptive_delta(weights, [torch.zeros(1), torch.zeros(1, 1)], 0.5)
    assert [part.item() for part in nothing] == [0.0, 0.0]


def test_a_step_on_a_model_of_two_weights() -> None:
    """Logits (w1, w2) for every image, labels of class 0, w = (2, 1), rho = 1: all by hand.

    With p = softmax(2, 1) = (0.7311, 0.2689), g = (p1 - 1, p2) = (-0.2689, 0.2689) and |w| g = (-0.5379, 0.2689), whose
    norm is 0.2689 sqrt(5): e = (-4, 1) / sqrt(5). At w + e = (0.2111, 1.4472) the gradient is (p1 - 1, p2).
    """

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([2.0, 1.0]))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.w.expand(len(images), 2)

    net = Two()
    step = Step(net, torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), 0, 0, lambda loss: loss.backward())
    loss = SharpnessAware(1.0, 0.0).backward(step)
    assert loss.item() == pytest.approx(-torch.tensor(0.7310586).log().item(), abs=1e-6)
    worst = torch.tensor([2.0 - 4.0 / 5**0.5, 1.0 + 1.0 / 5**0.5])
    expected = worst.softmax(0) - torch.tensor([1.0, 0.0])
    assert net.w.grad is not None
    assert net.w.grad.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert net.w.tolist() == [2.0, 1.0]


def test_a_step_equals_the_slow_reference(net: TinyNet) -> None:
    data = stripes(8)
    images, labels = data.images.float() / 255, data.labels
    trained, twin = copy.deepcopy(net).train(), copy.deepcopy(net).train()
    objective = SharpnessAware(2.0, 0.1)
    objective.backward(Step(trained, images, labels, 0, 0, lambda loss: loss.backward()))
    assert objective.passes(8) == 16

    F.cross_entropy(twin(images), labels, label_smoothing=0.1).backward()
    once = {key: value.clone() for key, value in twin.named_buffers()}
    total = sum(float(((w.detach() * w.grad) ** 2).sum()) for w in twin.parameters() if w.grad is not None) ** 0.5
    with torch.no_grad():
        for weight in twin.parameters():
            assert weight.grad is not None
            weight.add_(2.0 * weight**2 * weight.grad / total)
    twin.zero_grad()
    F.cross_entropy(twin(images), labels, label_smoothing=0.1).backward()
    for weight, expected in zip(trained.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, expected.grad, rtol=1e-4, atol=1e-6)
    # Weights are back to the bit, and only the first pass moved the statistics.
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), net.parameters(), strict=True))
    assert all(torch.equal(value, once[key]) for key, value in trained.named_buffers())


def test_passes_and_curve(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("ft-sam", epochs=1), device="cpu")
    assert attacked.curve is not None
    assert (attacked.curve.name, attacked.curve.values) == ("rho", RHOS)
    assert attacked.record.images == 3 * 2 * 288 + 4 * 32
    fixed = attack(net, data, attack_value("ft-sam", epochs=1, rho=2.0), device="cpu")
    assert (fixed.curve, fixed.record.metrics["rho"], fixed.record.images) == (None, 2.0, 2 * 320)


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("ft-sam", network, epochs=1, batch_size=8, rho=2.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="rho must be greater than 0, got 0"):
        SharpnessAwareFineTuning(rho=0.0)
    with pytest.raises(InputError, match=r"one protocol, 'sound', got 'paper'.*Leave the protocol out"):
        SharpnessAwareFineTuning(protocol="paper")
