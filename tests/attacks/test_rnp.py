"""RNP: a step of unlearning and one of recovery by hand, the rule of the mask, the stop at the floor."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import ReconstructiveNeuronPruning
from indelible.attacks.anp import THRESHOLDS, pruned_at
from indelible.attacks.removal_attack import attack
from indelible.attacks.rnp import Recovery, ascend
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.nn.channel_masks import MaskedNetwork, Neurons
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = ReconstructiveNeuronPruning()
    assert (value.images, value.unlearn_epochs, value.unlearn_lr, value.floor) == (500, 20, 0.01, 0.2)
    assert (value.alpha, value.epochs, value.lr, value.momentum, value.batch_size) == (0.2, 20, 0.2, 0.9, 128)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_unlearning_climbs() -> None:
    """Logits (w, 0) at w = 0, class 0: dCE/dw = p_0 - 1 = -1/2; a step of 0.1 up the loss leads to w = -0.05."""

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.w, torch.zeros(1)]).expand(len(images), 2)

    net = One()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    right = ascend(net, optimizer, torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    assert net.w.item() == pytest.approx(-0.05)
    assert int(right) == 4  # equal logits: the first class wins
    assert int(ascend(net, optimizer, torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))) == 0


def test_unlearning_is_clipped() -> None:
    """A gradient of norm 500 becomes one of 20."""
    net = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.zero_()
    images = torch.full((2, 1), 500.0 * 2**0.5)  # dCE/dw = (-1/2, 1/2) x, of norm x / sqrt(2)
    ascend(net, torch.optim.SGD(net.parameters(), lr=1.0), images, torch.zeros(2, dtype=torch.int64))
    assert net.weight.norm().item() == pytest.approx(20.0, rel=1e-4)


def two_neurons() -> MaskedNetwork:
    """Logits (m_1 x, m_2 x): an inner layer of two neurons with weight 1, and the identity behind it."""
    inner, last = nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        inner.weight.fill_(1.0)
        last.weight.copy_(torch.eye(2))
    return MaskedNetwork(nn.Sequential(inner, last), (Neurons("0.weight", None, 2),))


def test_the_rule_of_the_mask_by_hand() -> None:
    """x = 1, class 0, m = (1, 1): gradient alpha (p - y) = 0.2 (-1/2, 1/2); a rate of 5 leads to (1.5, 0.5)."""
    masked = two_neurons()
    objective, optimizer = Recovery(masked, 0.2), torch.optim.SGD([masked.mask], lr=5.0)
    step = Step(
        masked, torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), 0, 0, lambda loss: loss.backward()
    )  # fmt: skip
    objective.backward(step)
    assert masked.mask.grad is not None
    assert masked.mask.grad.tolist() == pytest.approx([-0.1, 0.1])
    optimizer.step()
    assert masked.mask.tolist() == pytest.approx([1.5, 0.5])
    # The next step begins at (1, 0.5): p_0 = 1 / (1 + e^-0.5).
    optimizer.zero_grad()
    objective.backward(step)
    assert masked.mask.tolist() == pytest.approx([1.0, 0.5])
    chance = float(torch.tensor([1.0, 0.5]).softmax(0)[0])
    assert masked.mask.grad.tolist() == pytest.approx([-0.2 * (1 - chance), 0.2 * (1 - chance)])
    # Of (1, 0.5) a threshold of 0.5 prunes the second, one of 0.45 neither.
    assert pruned_at(masked.mask.detach(), 0.5).tolist() == [1.0, 0.0]
    assert pruned_at(masked.mask.detach(), 0.45).tolist() == [1.0, 1.0]


@pytest.fixture
def learnt(net: TinyNet) -> TinyNet:
    """The stripes' classes, learnt."""
    data = stripes(160)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(30):
        rows = slice(step * 32 % 160, step * 32 % 160 + 32)
        optimizer.zero_grad()
        F.cross_entropy(net(data.images[rows].float() / 255), data.labels[rows]).backward()
        optimizer.step()
    return net


def test_unlearning_stops_at_the_floor(learnt: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """288 images to fit to, 32 held out; what each step still answers right is counted until the floor is reached."""
    right: list[int] = []

    def counted(*given: Any) -> torch.Tensor:
        found = ascend(*given)
        right.append(int(found))
        return found

    monkeypatch.setattr("indelible.attacks.rnp.ascend", counted)
    monkeypatch.setattr("indelible.attacks.anp.below_zero", lambda _: ())  # twenty thresholds and no others
    settings: dict[str, Any] = {"epochs": 1, "images": 100, "batch_size": 20}
    attacked = attack(learnt, data, attack_value("rnp", unlearn_lr=0.1, **settings), device="cpu")
    epochs = [sum(right[at : at + 5]) / 100 for at in range(0, len(right), 5)]
    assert len(right) == 5 * len(epochs) < 5 * 20
    # Four classes: the floor is a fifth more than chance.
    assert [share <= 0.3 for share in epochs] == [False] * (len(epochs) - 1) + [True]
    assert attacked.record.metrics["unlearned"] == epochs[-1]
    assert attacked.record.images == 21 * 32 + 100 + 100 * len(epochs)  # twenty and the stolen model; recovery
    right.clear()
    value = attack_value("rnp", unlearn_lr=1e-6, unlearn_epochs=2, **settings)
    slow = attack(learnt, data, value, device="cpu")
    assert len(right) == 2 * 5
    assert slow.record.images == 21 * 32 + 100 + 100 * 2
    assert slow.record.metrics["unlearned"] == sum(right[5:]) / 100 > 0.8


@pytest.mark.parametrize(("classes", "floor"), [(2, 0.6), (4, 0.3), (6, 0.2), (10, 0.2), (100, 0.2)])
def test_with_few_classes_the_floor_is_above_chance(classes: int, floor: float) -> None:
    assert ReconstructiveNeuronPruning().stops_at(classes) == pytest.approx(floor)


def test_the_stolen_weights_are_pruned_not_the_unlearned_ones(learnt: TinyNet, data: ImageData) -> None:
    stolen = copy.deepcopy(learnt)
    attacked = attack(learnt, data, attack_value("rnp", threshold=0.6, unlearn_lr=0.1, epochs=5), device="cpu")
    assert attacked.curve is not None
    assert attacked.curve.chosen == 0.6
    assert set(THRESHOLDS) <= set(attacked.curve.values)
    pruned = 0
    for name, value in attacked.model.state_dict().items():
        before = stolen.state_dict()[name]
        if name in {"features.1.weight", "features.4.weight"}:
            pruned += int((value == 0).sum())
            assert torch.equal(value, before * (value != 0))
        else:
            assert torch.equal(value, before), name
    assert pruned == attacked.record.metrics["pruned"] > 0
    assert attacked.record.metrics["neurons"] == 24


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("rnp", network, epochs=1, unlearn_epochs=1, batch_size=8, lr=20.0, threshold=0.9)


def test_refusals() -> None:
    with pytest.raises(InputError, match="images must be at least 2, got 1"):
        ReconstructiveNeuronPruning(images=1)
    with pytest.raises(InputError, match="one protocol"):
        ReconstructiveNeuronPruning(protocol="paper")
    bare = nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(16), nn.Linear(16, 4))
    with pytest.raises(InputError, match="no BatchNorm, no convolution and no inner linear layer"):
        attack(bare, stripes(8), "rnp", device="cpu")
