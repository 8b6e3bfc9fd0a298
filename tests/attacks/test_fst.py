"""FST: the loss by hand, the norm of the head, the new head, and which layer that is."""

import math

import pytest
import torch
from torch import nn

from indelible.attacks import FeatureShiftTuning
from indelible.attacks.fst import ALPHAS, FeatureShift, feature_shift_loss, head_of, renew, with_norm_of
from indelible.attacks.removal_attack import attack
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.attacks.networks import make_network
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = FeatureShiftTuning()
    assert (value.alpha, ALPHAS, value.epochs, value.lr) == (None, (0.05, 0.1, 0.2), 10, 0.01)
    assert (value.momentum, value.weight_decay, value.batch_size) == (0.9, 0.0, 128)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_the_loss_by_hand() -> None:
    """Two equal logits: CE = log 2. <(1, 2; 0, 1), (3, 1; 5, -1)> = 3 + 2 + 0 - 1 = 4."""
    head, original = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[3.0, 1.0], [5.0, -1.0]])
    loss = feature_shift_loss(torch.zeros(1, 2), torch.tensor([1]), head, original, 0.1)
    assert loss.item() == pytest.approx(math.log(2) + 0.4)


def test_the_norm_by_hand() -> None:
    """(3, 4) has norm 5, (0, 10) norm 10: the head doubles."""
    head = torch.tensor([[3.0, 4.0]])
    with_norm_of(head, torch.tensor([[0.0, 10.0]]))
    assert head.tolist() == [[6.0, 8.0]]


def test_a_step_restores_the_norm_and_adds_the_pull() -> None:
    """With constant logits, the head's gradient is alpha times the stolen head."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(2, 2)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.out(images) * 0.0
            return logits

    net, original = Flat(), torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    head = net.out.weight
    with torch.no_grad():
        head.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    objective = FeatureShift(head, original, 0.5)
    loss = objective.backward(
        Step(net, torch.ones(2, 2), torch.tensor([0, 1]), 0, 0, lambda value: value.backward())
    )  # fmt: skip
    assert head.tolist() == [[0.0, 5.0], [0.0, 0.0]]
    assert loss.item() == pytest.approx(math.log(2))  # the two heads are orthogonal
    assert head.grad is not None
    assert head.grad.tolist() == [[1.5, 0.0], [0.0, 2.0]]


def test_a_new_head_lies_within_the_bound() -> None:
    layer = nn.Linear(16, 50)
    before = layer.weight.detach().clone()
    renew(layer, torch.Generator().manual_seed(7))
    assert not torch.equal(layer.weight, before)
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max().item() <= 0.25
        assert parameter.abs().max().item() > 0.2
    again = nn.Linear(16, 50)
    renew(again, torch.Generator().manual_seed(7))
    assert torch.equal(again.weight, layer.weight)


def test_the_head_ends_with_the_stolen_norm_and_away_from_it(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("fst", epochs=2, alpha=0.2), device="cpu")
    assert attacked.record.metrics["head"] == "head"
    assert isinstance(attacked.model, TinyNet)
    head, original = attacked.model.head.weight.detach(), net.head.weight.detach()
    assert float(head.norm()) == pytest.approx(float(original.norm()), rel=1e-5)
    assert float((head * original).sum() / head.norm() / original.norm()) < 0.2
    assert attacked.record.images == 2 * 320


def test_passes_and_curve(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("fst", epochs=1), device="cpu")
    assert attacked.curve is not None
    assert (attacked.curve.name, attacked.curve.values) == ("alpha", ALPHAS)
    assert attacked.record.images == 3 * 288 + 4 * 32
    for alpha in ALPHAS:
        built = attacked.curve.build(alpha)
        assert isinstance(built, TinyNet)
        assert built.head.weight.norm().item() == pytest.approx(net.head.weight.norm().item(), rel=1e-5)


@pytest.mark.parametrize(("network", "name"), [("vgg-like", "12"), ("group-norm", "8"), ("own", "out")])
def test_the_head_is_found_by_tracing(network: str, name: str) -> None:
    assert head_of(make_network(network), torch.rand(2, 3, 32, 32), 4) == name


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("fst", network, epochs=1, batch_size=8, alpha=0.1)


def test_refusals(net: TinyNet) -> None:
    with pytest.raises(InputError, match="alpha must be at least 0, got -1"):
        FeatureShiftTuning(alpha=-1.0)
    with pytest.raises(InputError, match="one protocol"):
        FeatureShiftTuning(protocol="paper")
    net.head.requires_grad_(False)
    with pytest.raises(InputError, match="'head' is frozen"):
        attack(net, stripes(8), "fst", device="cpu")
    headless = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.AdaptiveAvgPool1d(4), nn.LayerNorm(4))
    with pytest.raises(InputError, match=r"4 outputs for FST, got '0' with 5 outputs"):
        attack(headless, stripes(8), "fst", device="cpu")
    layerless = nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(4), nn.LayerNorm(4))
    with pytest.raises(InputError, match=r"got none\. Choose an attack"):
        attack(layerless, stripes(8), "fst", device="cpu")
