"""The scale ``cpu``, the default: cheaper, counted by hand; and ``paper`` with the paper's passes."""

from typing import Any

import pytest

from indelible.attacks import ATTACKS, FineTuning, attack
from indelible.base.checks import check_settings
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.train.settings import SCALES
from tests.conftest import TinyNet, stripes
from tests.values import attack_value

IMAGES = 40
# Image passes with 40 images: 36 are fitted to and 4 held out; MCR halves the 36.
PASSES = {
    "ft": 15 * 40,
    "fp": 36 + 20 * 4 + 15 * 40,  # rank, twenty rates, fine-tune
    "mcr": 15 * 18 + 15 * 18 + 11 * (18 + 4) + 4,  # end, curve, statistics and accuracy of eleven points
    "distill": 2 * 12 * 40,
    "ft-sam": 3 * 2 * 3 * 36 + 4 * 4,  # three radii, two passes a step; the stolen model and three others judged
    "super-ft": 3 * 6 * 36 + 4 * 4,
    "rehearse": (4 * 5 + 15) * 36
    + 6 * 4,  # three shares and a rate, then long; the stolen model and five others judged
    "fst": 3 * 6 * 36 + 4 * 4,
    "i-bau": 5 * 4 * 36 + 6 * 4,  # two passes to find the change and two to unlearn it
    "invert": 2 * 4 * 36 + 2 * 4 * 36 + 3 * 4,  # two searches of four classes; two shares tuned, three models judged
    "sau": 2 * (2 + 2 * 2 + 3) * 36 + 3 * 4,
}


@pytest.fixture(scope="module")
def images() -> ImageData:
    return stripes(IMAGES)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_scale_has_settings_that_the_attack_knows(name: str) -> None:
    kind = ATTACKS[name].build
    check_settings(kind, kind.cpu_settings, "setting")
    assert kind.defaults("paper") == {}
    assert kind.defaults("cpu") == dict(kind.cpu_settings)
    assert kind.at_scale("cpu").protocol == "sound"
    assert kind.at_scale("paper") == kind()


@pytest.mark.parametrize("name", PASSES)
def test_passes_of_the_cheaper_scale(name: str, images: ImageData) -> None:
    attacked = attack(TinyNet(), images, name, scale="cpu", device="cpu")
    assert attacked.record.images == PASSES[name]
    assert attacked.record.settings["scale"] == "cpu"


@pytest.mark.parametrize(("ba_drop", "tried"), [(1.0, 1), (-1.0, 3)])
def test_passes_of_nad_depend_on_how_many_betas_are_tried(images: ImageData, ba_drop: float, tried: int) -> None:
    attacked = attack(TinyNet(), images, attack_value("nad", ba_drop=ba_drop), scale="cpu", device="cpu")
    assert len(attacked.record.metrics["tried"]) == tried
    # Teacher; students with the teacher; the held-out four before and after each.
    assert attacked.record.images == 5 * 36 + tried * 2 * 5 * 36 + (1 + tried) * 4


@pytest.mark.parametrize("below", [(), (-0.2, -0.1)])
def test_passes_of_anp_depend_on_how_many_neurons_fall_below_zero(
    images: ImageData, below: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indelible.attacks.anp.below_zero", lambda _: below)
    attacked = attack(TinyNet(), images, "anp", scale="cpu", device="cpu")
    assert attacked.curve is not None
    assert len(attacked.curve.values) == 20 + len(below)
    # Masks in three passes a step; the held-out four at every threshold and for the stolen model.
    assert attacked.record.images == 6 * 3 * 36 + (20 + len(below) + 1) * 4


def test_what_is_given_goes_before_the_scale(images: ImageData) -> None:
    attacked = attack(TinyNet(), images, attack_value("ft", epochs=1), device="cpu")
    settings: dict[str, Any] = attacked.record.settings["method"]
    assert (settings["epochs"], settings["every"], settings["lr"]) == (1, 4, 0.05)


def test_the_cheaper_scale_is_the_default(images: ImageData) -> None:
    by_default = attack(TinyNet(), images, FineTuning.at_scale(epochs=1), device="cpu")
    named = attack(TinyNet(), images, FineTuning.at_scale("cpu", epochs=1), device="cpu")
    assert attack(TinyNet(), images, device="cpu").record.settings["method"] == FineTuning.at_scale().to_json()
    assert by_default.record.settings == named.record.settings
    assert by_default.record.settings["method"]["every"] == 4
    longer = attack(TinyNet(), images, FineTuning.at_scale("paper", epochs=1), device="cpu")
    assert longer.record.settings["method"]["every"] == 5


@pytest.mark.parametrize("name", ATTACKS)
def test_the_cheaper_scale_leaves_rates_and_strengths_alone(name: str) -> None:
    """What is cut is how long, never how hard: only numbers of epochs, steps, images and points differ."""
    lengths = {"epochs", "teacher_epochs", "end_epochs", "cleanse_epochs", "every", "milestone", "points", "rounds"}
    lengths |= {"steps", "cleanse_images", "trial_epochs"}
    assert set(ATTACKS[name].build.cpu_settings) <= lengths | {"batch_size", "cleanse_batch", "cleanse_round"}


def test_refusals(images: ImageData) -> None:
    assert list(SCALES) == ["cpu", "paper"]
    with pytest.raises(UnknownNameError, match=r"'gpu'.*cpu.*paper"):
        attack(TinyNet(), images, "ft", scale="gpu")
    with pytest.raises(InputError, match="Give the name, or leave out scale"):
        attack(TinyNet(), images, FineTuning(epochs=1), scale="paper")
