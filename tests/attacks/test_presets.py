"""The preset ``cpu``: a cheaper budget under a name, counted by hand, and the full one as the default."""

from typing import Any

import pytest
import torch

from indelible.attacks import ATTACKS, BUDGETS, FineTuning, attack, settings_of
from indelible.base.checks import check_settings
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from tests.conftest import TinyNet, stripes

IMAGES = 200
# Image passes with 200 images, of which 180 are fitted to and 20 held out, or 90 and 90 and 20.
PASSES = {
    "ft": 15 * 200,
    "fp": 180 + 20 * 20 + 15 * 200,  # rank, twenty rates, fine-tune
    "nad": 5 * 200 + 2 * 5 * 200,  # teacher; student with teacher
    "mcr": 15 * 90 + 15 * 90 + 11 * (90 + 20) + 20,  # end, curve, statistics and accuracy of eleven points
    "distill": 2 * 12 * 200,
}


@pytest.fixture(scope="module")
def images() -> ImageData:
    return stripes(IMAGES)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_budget_has_settings_that_the_attack_knows(name: str) -> None:
    kind = ATTACKS[name].build
    check_settings(kind, kind.cpu_settings, "setting")
    assert settings_of(name, "full", {}) == {}
    assert settings_of(name, "cpu", {}) == dict(kind.cpu_settings)
    assert kind.of(settings_of(name, "cpu", {})).recipe == "sound"


@pytest.mark.parametrize("name", PASSES)
def test_passes_of_the_cheaper_budget(name: str, images: ImageData) -> None:
    attacked = attack(TinyNet(), images, name, preset="cpu", device="cpu")
    assert attacked.record.images == PASSES[name]
    assert attacked.record.settings["preset"] == "cpu"


def test_what_is_given_goes_before_the_preset(images: ImageData) -> None:
    attacked = attack(TinyNet(), images, "ft", preset="cpu", epochs=1, device="cpu")
    settings: dict[str, Any] = attacked.record.settings["method"]
    assert (settings["epochs"], settings["every"], settings["lr"]) == (1, 2.5, 0.05)


def test_the_full_budget_is_the_default(images: ImageData) -> None:
    by_default, named = (
        attack(TinyNet(), images, "ft", epochs=1, device="cpu", **preset) for preset in ({}, {"preset": "full"})
    )
    assert by_default.record.settings == named.record.settings
    assert by_default.record.settings["method"]["every"] == 5


def test_the_same_peak_rate_and_the_same_shape() -> None:
    """A compressed schedule: at the same share of the run, the rate of both budgets is the same."""
    from indelible.train import Schedule

    full, cheap = FineTuning(), FineTuning.of(settings_of("ft", "cpu", {}))
    for share in torch.linspace(0, 0.99, 25).tolist():
        rates = [
            value.lr * Schedule.every(value.every, value.gamma).factor(share * value.epochs, value.epochs)
            for value in (full, cheap)
        ]
        assert rates[0] == pytest.approx(rates[1])


def test_refusals(images: ImageData) -> None:
    assert BUDGETS == ("full", "cpu")
    with pytest.raises(UnknownNameError, match=r"'gpu'.*full.*cpu"):
        attack(TinyNet(), images, "ft", preset="gpu")
    with pytest.raises(InputError, match="Give its name, or leave out the preset"):
        attack(TinyNet(), images, FineTuning(epochs=1), preset="cpu")
