"""Trying strengths: one model for each value or round, the strongest within the budget, divergence, a fixed value."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from indelible.attacks.removal_attack import Removal
from indelible.attacks.strengths import TrainedStrength, Training, try_rounds
from indelible.base.errors import InputError
from indelible.data.images import Data, ImageData
from tests.conftest import stripes


class Bars(nn.Module):
    """Answers by the brightest of four bars; ``broken`` above 0.5 makes it answer class 0 always."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = nn.Parameter(torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        bars = images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)
        return torch.where(self.broken > 0.5, torch.eye(4)[0] + 0.0 * bars, bars) + 0.0 * self.broken


def job(data: ImageData | None = None) -> Removal:
    return Removal(model=Bars(), data=data or stripes(40), seed=0, device="cpu")


def to_value(model: nn.Module, value: float, _data: Data) -> None:
    with torch.no_grad():
        model.get_parameter("broken").fill_(value)


def try_strengths(
    work: Removal, values: tuple[float, ...], learn: Training, *, ba_drop: float, fixed: float | None = None
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Trying(TrainedStrength):
        strength = "s"
        strengths = values
        s: float | None = None
        epochs: int = 1

        def train(self, job: Removal, model: nn.Module, value: float, data: Data) -> None:
            learn(model, value, data)

    Trying(s=fixed, ba_drop=ba_drop).run(work)


def test_the_strongest_within_the_budget_is_taken() -> None:
    """Held out are 4 of 40 images: strengths 0.1 and 0.4 keep all of the accuracy, 0.9 keeps class 0 only."""
    work = job()
    held = work.parts()[1]
    zeros = int((held.gather(torch.arange(4)).labels == 0).sum()) / 4
    try_strengths(work, (0.1, 0.4, 0.9), to_value, ba_drop=0.02)
    assert work.curve is not None
    assert (work.curve.name, work.curve.values, work.curve.chosen) == ("s", (0.1, 0.4, 0.9), 0.4)
    assert work.curve.accuracies == (1.0, 1.0, zeros)
    assert work.figures == {"s": 0.4, "accuracy": 1.0}
    assert work.model.get_parameter("broken").item() == pytest.approx(0.4)
    assert work.curve.build(0.9).get_parameter("broken").item() == pytest.approx(0.9)
    assert work.images == 4 * 4  # the stolen model and three others, four images each


def test_every_strength_starts_from_the_stolen_model_and_sees_the_fitting_part() -> None:
    work, starts, seen = job(), list[float](), list[int]()

    def train(model: nn.Module, value: float, data: Data) -> None:
        starts.append(model.get_parameter("broken").item())
        seen.append(len(data))
        to_value(model, value, data)

    try_strengths(work, (0.1, 0.2), train, ba_drop=0.02)
    assert (starts, seen) == ([0.0, 0.0], [36, 36])


def test_a_fixed_strength_is_trained_on_all_images() -> None:
    work, seen = job(), list[int]()

    def train(model: nn.Module, value: float, data: Data) -> None:
        seen.append(len(data))
        to_value(model, value, data)

    try_strengths(work, (0.1, 0.2), train, ba_drop=0.02, fixed=0.7)
    assert seen == [40]
    assert (work.curve, work.figures, work.images) == (None, {"s": 0.7}, 0)
    assert work.model.get_parameter("broken").item() == pytest.approx(0.7)


def diverging(broken: float) -> Callable[[nn.Module, float, Data], None]:
    def train(model: nn.Module, value: float, data: Data) -> None:
        to_value(model, torch.nan if value >= broken else value, data)
        if value >= broken:
            raise InputError("the loss became NaN")

    return train


def test_a_strength_that_diverges_ends_the_list() -> None:
    work = job()
    try_strengths(work, (0.1, 0.2, 0.3, 0.4), diverging(0.3), ba_drop=0.02)
    assert work.curve is not None
    assert (work.curve.values, work.curve.chosen) == ((0.1, 0.2), 0.2)
    assert work.figures["diverged"] == 0.3
    with pytest.raises(InputError, match="became NaN"):
        try_strengths(job(), (0.3, 0.4), diverging(0.3), ba_drop=0.02)


def test_another_refusal_is_not_taken_for_divergence() -> None:
    def train(model: nn.Module, value: float, data: Data) -> None:
        to_value(model, value, data)
        if value > 0.1:
            raise InputError("the folder is another's")

    with pytest.raises(InputError, match="another's"):
        try_strengths(job(), (0.1, 0.2), train, ba_drop=0.02)


def test_rounds_go_on_from_each_other_and_the_most_within_the_budget_are_kept() -> None:
    """A quarter more in every round: 0.25, 0.5, 0.75 - and above 0.5 the model is broken."""
    work = job()

    def train(model: nn.Module, number: int, data: Data) -> None:
        assert model.get_parameter("broken").item() == pytest.approx(0.25 * (number - 1))
        to_value(model, 0.25 * number, data)

    try_rounds(work, 3, train, ba_drop=0.02)
    assert work.curve is not None
    assert (work.curve.name, work.curve.values, work.curve.chosen) == ("rounds", (1, 2, 3), 2)
    assert work.model.get_parameter("broken").item() == 0.5
    assert work.images == 4 * 4
