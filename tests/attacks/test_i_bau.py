"""I-BAU: the hypergradient of a quadratic against its closed form, the search, the images that carry the change."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import ImplicitUnlearning
from indelible.attacks.i_bau import HypergradientUnlearning, hypergradient, inner_loss
from indelible.attacks.removal_attack import Removal, attack
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = ImplicitUnlearning()
    assert (value.rounds, value.steps, value.inner_lr, value.penalty, value.search_lr) == (5, 5, 0.1, 0.001, 10.0)
    assert (value.share, value.lr, value.batch_size) == (0.01, 0.001, 100)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def quadratic() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """h = d'Ad / 2 - d'Bt, so that d* = A^-1 B t; H = |d - c|^2 / 2 + |t|^2 / 2."""
    bowl, mixing = torch.tensor([[2.0, 0.5], [0.5, 1.0]]), torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    return bowl, mixing, torch.tensor([0.3, -0.2]), torch.tensor([1.0, -1.0, 0.5])


def test_the_hypergradient_of_a_quadratic_is_the_closed_form() -> None:
    """dH/dt = t + (A^-1 B)' (d* - c), which many iterations reach."""
    bowl, mixing, aim, start = quadratic()
    theta = start.clone().requires_grad_()
    best = torch.linalg.solve(bowl, mixing @ start)
    value, (found,) = hypergradient(
        lambda d: ((d - aim) ** 2).sum() / 2 + (theta**2).sum() / 2,
        lambda d: d @ bowl @ d / 2 - d @ (mixing @ theta), best, [theta], lr=0.4, steps=200,
    )  # fmt: skip
    expected = start + torch.linalg.solve(bowl, mixing).T @ (best - aim)
    assert value.item() == pytest.approx(float(((best - aim) ** 2).sum() / 2 + (start**2).sum() / 2))
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_few_iterations_are_the_truncated_sum() -> None:
    """K = 3: v = (I + M + M^2) g with M = I - lr A; the implicit part is lr B' v."""
    bowl, mixing, aim, start = quadratic()
    theta, point = start.clone().requires_grad_(), torch.tensor([0.7, 0.1])
    _, (found,) = hypergradient(
        lambda d: ((d - aim) ** 2).sum() / 2, lambda d: d @ bowl @ d / 2 - d @ (mixing @ theta), point, [theta],
        lr=0.1, steps=3,
    )  # fmt: skip
    shrink = torch.eye(2) - 0.1 * bowl
    product = (torch.eye(2) + shrink + shrink @ shrink) @ (point - aim)
    assert found.tolist() == pytest.approx((0.1 * mixing.T @ product).tolist(), abs=1e-6)


def test_the_inner_loss_by_hand() -> None:
    """Equal logits: -log 2; a change (3, 4) with penalty 0.1: + 2.5."""
    loss = inner_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([3.0, 4.0]), 0.1)
    assert loss.item() == pytest.approx(2.5 - math.log(2))


class Linear(nn.Module):
    """Two classes by the mean of a 1 x 1 image of one channel, and a second parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.idle = nn.Linear(1, 2, bias=False), nn.Parameter(torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(images.flatten(1))
        return logits


def test_the_search_takes_steps_of_plain_descent() -> None:
    """One batch of one image x = 0.2, w = (1, 0): p = softmax(0.2, 0), own answer 0.

    dh/dd at d = 0 is -(dCE/dd) = -((p_0 - 1) w_0 + p_1 w_1) = 1 - p_0, so that the step is -10 (1 - p_0).
    """
    net = Linear()
    with torch.no_grad():
        net.out.weight.copy_(torch.tensor([[1.0], [0.0]]))
    data = ImageData(torch.full((1, 1, 1, 1), 51, dtype=torch.uint8), torch.tensor([1]), ("a", "b"), "one")
    job = Removal(model=net, data=data, seed=0, device="cpu")
    change = ImplicitUnlearning()._search(job, net, data)
    chance = math.exp(0.2) / (1 + math.exp(0.2))
    assert change.item() == pytest.approx(-10 * (1 - chance), abs=1e-5)
    assert job.images == 2
    assert all(weight.grad is None for weight in net.parameters())


def test_a_step_is_the_hypergradient_of_the_network(net: TinyNet) -> None:
    """With every image carrying the change, H = CE(x + d): against the functions written out on a twin."""
    data = stripes(6)
    images, labels = data.images.float() / 255, data.labels
    method = ImplicitUnlearning(share=1.0, steps=2)
    change = 0.1 * torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    trained, twin = copy.deepcopy(net).train(), copy.deepcopy(net).eval()
    objective = HypergradientUnlearning(change, method, None, 0)
    loss = objective.backward(Step(trained, images, labels, 0, 0, lambda value: value.backward()))
    assert trained.training
    assert objective.passes(6) == 12

    weights, at = list(twin.parameters()), change.clone().requires_grad_()
    outer = F.cross_entropy(twin(images + at), labels)
    along, *direct = torch.autograd.grad(outer, [at, *weights])
    inner = -F.cross_entropy(twin(images + at), labels) + 0.001 * (at**2).sum()
    (slope,) = torch.autograd.grad(inner, [at], create_graph=True)
    (bent,) = torch.autograd.grad((slope * along).sum(), [at], retain_graph=True)
    product = along + along - 0.1 * bent
    mixed = torch.autograd.grad((slope * product).sum(), weights)
    assert loss.item() == pytest.approx(outer.item(), rel=1e-5)
    for weight, one, other in zip(trained.parameters(), direct, mixed, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, one - 0.1 * other, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(trained.buffers(), net.buffers(), strict=True))


@pytest.mark.parametrize(("share", "rows", "carrying"), [(0.01, 8, 1), (0.5, 8, 4), (1.0, 5, 5), (0.01, 250, 2)])
def test_how_many_images_carry_the_change(share: float, rows: int, carrying: int) -> None:
    objective = HypergradientUnlearning(torch.zeros(1, 1, 1, 1), ImplicitUnlearning(share=share), None, 0)
    step = Step(nn.Identity(), torch.zeros(rows, 1, 1, 1), torch.zeros(rows), 3, 0, lambda _: None)
    carried = objective._carried(step)
    assert (int(carried.sum()), carried.shape) == (carrying, (rows, 1, 1, 1))


def test_passes_and_curve(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("i-bau", rounds=2), device="cpu")
    assert attacked.curve is not None
    assert (attacked.curve.name, attacked.curve.values) == ("rounds", (1, 2))
    # In every round two passes to find the change and two to unlearn it; the stolen model and both others are judged.
    assert attacked.record.images == 2 * 4 * 288 + 3 * 32
    assert [row["phase"] for row in attacked.history] == ["round 1", "round 2"]


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("i-bau", network, rounds=1, steps=2, batch_size=4)


def test_refusals() -> None:
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        ImplicitUnlearning(rounds=0)
    with pytest.raises(InputError, match="one protocol"):
        ImplicitUnlearning(protocol="paper")
