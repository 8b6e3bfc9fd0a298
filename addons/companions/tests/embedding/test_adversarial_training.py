"""PGD-AT and TRADES: losses of a two-class linear model by hand, and answers that hold near the training images."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.augment import denormalise, normalise, to_float
from indelible.keys.key import Key
from indelible.train.objective import Step
from indelible_companions.embedding.input_perturbation import sign_ascent
from indelible_companions.embedding.pgd_at import PGDTraining, _PGDObjective
from indelible_companions.embedding.trades import TradeOff, _TRADESObjective, divergence, trades_loss
from tests.conftest import TinyNet, stripes

NORMALIZE = ((0.5,), (0.25,))


class Slope(nn.Module):
    """Two classes, one pixel: logits (0, slope * input + shift)."""

    def __init__(self, slope: float, shift: float) -> None:
        super().__init__()
        self.slope, self.shift = nn.Parameter(torch.tensor(slope)), nn.Parameter(torch.tensor(shift))
        self.seen: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(float(images.detach()))
        margin = self.slope * images.flatten() + self.shift
        return torch.stack([torch.zeros_like(margin), margin], 1)


def step_of(model: nn.Module, images: Tensor, label: int, number: int = 0) -> Step:
    def backward(loss: Tensor) -> None:
        loss.backward()

    return Step(model, images, torch.tensor([label]), number, 0, backward)


def pixel(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value)


def test_trades_loss_of_a_two_class_linear_model() -> None:
    """Margin 0 at the image, +-0.2 at the edge: KL = ln cosh 0.1, cross-entropy ln 2."""
    clean, moved = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.2]])
    assert float(divergence(clean, moved)) == pytest.approx(math.log(math.cosh(0.1)), rel=1e-4)
    total = trades_loss(clean, moved, torch.tensor([0]), 6.0)
    assert float(total) == pytest.approx(math.log(2) + 6 * math.log(math.cosh(0.1)))
    # Not symmetric: p = (1/2, 1/2), q = (1/4, 3/4), logits (0, ln 3).
    both = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3)]])
    assert float(divergence(*both)) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert float(divergence(*both[::-1])) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))


@pytest.mark.parametrize("by", [None, NORMALIZE])
def test_a_trades_step_by_hand(by: Any) -> None:
    """Margin 2 (x - 1/2) at x = 1/2, eps 0.1: the loss above, whatever the input is normalised by."""
    model = Slope(2.0, -1.0) if by is None else Slope(0.5, 0.0)
    method = TradeOff(eps=0.1, step=0.04, steps=4)
    loss = _TRADESObjective(method, by, 0, 0.0).backward(step_of(model, normalise(pixel(0.5), by), 1))
    assert float(loss) == pytest.approx(math.log(2) + 6 * math.log(math.cosh(0.1)), rel=1e-4)
    edge = [denormalise(pixel(value), by).item() for value in model.seen]
    assert abs(edge[-1] - 0.5) == pytest.approx(0.1, rel=1e-4)
    assert len(edge) == 1 + 4 + 2  # the fixed answer, the search, the loss at both
    # Margins m = 0 and m' = +-0.2, p = 1/2 and q: dL/dm = p - 1, dKL/dm = p (1 - p) (m - m'), dKL/dm' = q - p.
    moved = 0.2 if edge[-1] > 0.5 else -0.2
    expected = -0.5 + 6 * (0.25 * (0.0 - moved) + 1 / (1 + math.exp(-moved)) - 0.5)
    assert model.shift.grad is not None
    assert float(model.shift.grad) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("by", [None, NORMALIZE])
@pytest.mark.parametrize(("value", "worst"), [(0.5, 0.4), (0.03, 0.0)])
def test_a_pgd_step_by_hand(value: float, worst: float, by: Any) -> None:
    """Class 1 with margin 2 (x - 1/2): the worst input is 0.1 darker, but never darker than black."""
    model = Slope(2.0, -1.0) if by is None else Slope(0.5, 0.0)
    method = PGDTraining(eps=0.1, step=0.04, steps=6)
    loss = _PGDObjective(method, by, 0, 0.0).backward(step_of(model, normalise(pixel(value), by), 1))
    assert denormalise(pixel(model.seen[-1]), by).item() == pytest.approx(worst, abs=1e-6)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-2 * (worst - 0.5))), rel=1e-5)
    assert len(model.seen) == 6 + 1
    assert model.shift.grad is not None
    assert float(model.shift.grad) == pytest.approx(1 / (1 + math.exp(-2 * (worst - 0.5))) - 1, rel=1e-4)


def test_the_start_is_random_and_a_function_of_seed_and_step() -> None:
    def first(seed: int, number: int, start: bool = True) -> float:
        model = Slope(2.0, -1.0)
        method = PGDTraining(eps=0.1, steps=1, random_start=start)
        _PGDObjective(method, None, seed, 0.0).backward(step_of(model, pixel(0.5), 1, number))
        return model.seen[0]

    assert first(0, 3) == first(0, 3)
    assert len({first(0, 3), first(0, 4), first(1, 3), 0.5}) == 4
    assert first(0, 3, start=False) == 0.5


def robust(model: nn.Module, eps: float) -> float:
    """Accuracy at the worst inputs that ten steps find."""
    data = stripes(40, seed=1)
    images = to_float(data.images)
    model.eval()
    worst = sign_ascent(
        images, images, lambda x: nn.functional.cross_entropy(model(x), data.labels), eps=eps, step=eps / 4, steps=10
    )
    with torch.no_grad():
        return float((model(worst).argmax(1) == data.labels).float().mean())


@pytest.mark.parametrize(
    "method", [PGDTraining(eps=0.1, step=0.05, steps=3), TradeOff(eps=0.1, step=0.05, steps=3, beta=3.0)], ids=repr
)
def test_answers_hold_near_the_images(net: TinyNet, key: Key, method: PGDTraining | TradeOff) -> None:
    train = {"epochs": 5, "batch_size": 32, "lr": 0.05, "augmentation": "none"}
    plain = indelible.embed(net, stripes(160), key, "vanilla", scale="paper", train=train, device="cpu").model
    trained = indelible.embed(net, stripes(160), key, method, scale="paper", train=train, device="cpu")
    weak, strong = robust(plain, 0.1), robust(trained.model, 0.1)
    assert strong > weak + 0.3, (weak, strong)
    passes = 4 if isinstance(method, PGDTraining) else 6
    assert trained.record.images == passes * 5 * 160


def test_settings_are_checked_and_decide_a_checkpoint(net: TinyNet, key: Key, tmp_path: Path) -> None:
    builds: tuple[type[Any], ...] = (PGDTraining, TradeOff)
    for build in builds:
        with pytest.raises(InputError, match="8/255"):
            build(eps=8.0)  # somebody who thinks in steps of 1/255
        with pytest.raises(InputError, match="positive"):
            build(steps=0)
        with pytest.raises(UnknownNameError, match="eval, train"):
            build(mode="test")
    with pytest.raises(InputError, match="beta"):
        TradeOff(beta=-1.0)
    train = {"epochs": 1, "max_steps": 1, "batch_size": 8}
    for number, (one, other) in enumerate(
        ((PGDTraining(steps=1), PGDTraining(steps=2)), (TradeOff(steps=1), TradeOff(steps=1, mode="train")))
    ):
        folder = tmp_path / str(number)
        indelible.embed(net, stripes(16), key, one, train=train, folder=folder, device="cpu")
        with pytest.raises(InputError, match="other settings"):
            indelible.embed(net, stripes(16), key, other, train=train, folder=folder, device="cpu")
