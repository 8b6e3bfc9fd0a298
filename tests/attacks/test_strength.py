"""One strength at a budget: the choice and its costs by hand, weights by type, and networks of the catalogue."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks import ATTACKS, attack
from indelible.attacks.magnitude import weight_matrices
from indelible.attacks.removal_attack import Removal
from indelible.attacks.strengths import change_at_budget
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.data.images import ImageData
from indelible.models import build_model
from tests.attacks.settings import REFUSED
from tests.conftest import stripes
from tests.values import attack_value

NEW = ("clp", "bnp", "magnitude", "quantise", "weight-noise", "overwrite")


class Threshold(nn.Module):
    """Class 1 where the first pixel is at least ``level``: its accuracy at a level can be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([self.level.expand(len(images)), images[:, 0, 0, 0] * 255.0], 1)


def _job() -> Removal:
    """Ten images with first pixels 1 .. 10, all of class 1: at level v the v - 1 images below it are wrong."""
    images = torch.zeros(10, 1, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(1, 11, dtype=torch.uint8)
    return Removal(
        model=Threshold(), data=ImageData(images, torch.ones(10, dtype=torch.int64), ("a", "b")), seed=0, device="cpu"
    )


def _raise(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(value + 0.5)


def test_the_strongest_value_within_the_budget_is_taken_and_the_curve_kept() -> None:
    """At 0, 1, 2, 5 (plus a half) 0, 1, 2, 5 of ten images are wrong: accuracies 1, 0.9, 0.8, 0.5."""
    job = _job()
    chosen = change_at_budget(job, _raise, name="level", values=(0.0, 1.0, 2.0, 5.0), given=None, ba_drop=0.2)
    assert chosen == 2.0
    assert job.curve is not None
    assert job.curve.to_json() == {
        "name": "level", "values": [0.0, 1.0, 2.0, 5.0], "accuracies": [1.0, 0.9, 0.8, 0.5], "chosen": 2.0,
    }  # fmt: skip
    assert [weight.tolist() for weight in job.model.parameters()] == [[2.5]]
    assert [weight.tolist() for weight in job.curve.build(5.0).parameters()] == [
        [5.5]
    ]  # from the stolen model, not from the changed one
    assert job.images == 5 * 10  # four strengths and the stolen model


def test_a_given_value_is_taken_whatever_it_costs() -> None:
    job = _job()
    assert change_at_budget(job, _raise, name="level", values=(0.0, 1.0), given=7.0, ba_drop=0.0) == 7.0
    assert job.curve is not None
    assert job.curve.values == (0.0, 1.0, 7.0)
    assert job.images == 3 * 10  # nothing to compare with


def test_low_values_can_be_the_strong_ones_and_others_may_judge() -> None:
    job = _job()
    half = job.data.subset(torch.arange(5, 10))  # pixels 6 .. 10: right up to level 5.5
    chosen = change_at_budget(
        job, _raise, name="level", values=(2.0, 5.0), given=None, ba_drop=0.0, strongest="low", judges=half
    )
    assert chosen == 2.0
    assert job.images == 3 * 5


class Parts(nn.Module):
    """Weights of all sorts: only three of them have outputs and inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.turned = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 3)
        self.norm, self.grid, self.out = nn.BatchNorm2d(4), nn.LayerNorm((4, 4)), nn.Linear(8, 2)


def test_weights_are_found_by_type() -> None:
    parts = Parts()
    found = [(id(weight), axis) for weight, axis in weight_matrices(parts)]
    assert found == [(id(parts.conv.weight), 0), (id(parts.turned.weight), 1), (id(parts.out.weight), 0)]
    with pytest.raises(InputError, match="BatchNorm2d has no weight of two or more axes"):
        weight_matrices(nn.BatchNorm2d(3))


@pytest.mark.parametrize(
    "network",
    [
        "resnet-w16-s2",
        pytest.param("resnet-18", marks=pytest.mark.slow),
        pytest.param("vit-tiny", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", NEW)
def test_networks_of_the_catalogue(name: str, network: str) -> None:
    stolen, data = build_model(network, classes=4, shape=(3, 32, 32), seed=0).eval(), stripes(8)
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 8} if name == "overwrite" else {}
    if (name, network) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name, network]):
            attack(stolen, data, name, device="cpu")
        return
    first, second = (attack(stolen, data, attack_value(name, **settings), device="cpu", seed=5) for _ in range(2))
    assert tensor_digest(first.model.state_dict()) == tensor_digest(second.model.state_dict())
    assert first.record.metrics == second.record.metrics


@pytest.mark.parametrize("name", NEW)
def test_passes_are_those_that_the_card_says(name: str) -> None:
    """With 40 images: every strength and the stolen model by all; BNP fits to 36 and chooses by 4."""
    stolen, strengths = build_model("resnet-w8", classes=4, shape=(3, 32, 32), seed=0), ATTACKS[name].build.strengths
    found = attack(stolen, stripes(40), name, device="cpu", scale="cpu").record.images
    expected = (len(strengths) + 1) * 40
    if name == "bnp":
        expected = 36 + (len(strengths) + 1) * 4
    if name == "overwrite":
        expected = 15 * 40 + 2  # two own marks are asked at the end
    assert found == expected
