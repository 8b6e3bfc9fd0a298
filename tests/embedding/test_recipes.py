"""Recipes: what they change, what wins, and who refuses them."""

from typing import Any

import pytest

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.embedding import AdversarialPerturbation, ExponentialWeights, Vanilla
from indelible.keys.key import Key
from tests.conftest import TinyNet, stripes


def book(key: Key) -> Key:
    return Key.create(classes=key.classes, shape=key.shape, secret=bytes(32))


def test_a_run_with_a_recipe(net: TinyNet, key: Key) -> None:
    own = book(key)
    how: dict[str, Any] = {"scale": "cpu", "train": {"max_steps": 1}, "device": "cpu"}
    found = [
        indelible.embed(
            net, stripes(64), own, AdversarialPerturbation.for_key(own, recipe=recipe), **how
        ).record.settings["method"]
        for recipe in (None, "balanced", "light", "strong")
    ]
    assert found[0] == found[1]
    given = [
        AdversarialPerturbation.for_key(own, recipe=recipe, rows=4).to_json()
        for recipe in ("balanced", "light", "strong")
    ]
    assert given == [{**method, "rows": 4} for method in found[1:]]  # what is given wins over the recipe
    assert found[2] == {**found[1], "eps": 0.0, "every": 3}  # the control, with fewer passes
    assert found[3]["eps"] > found[1]["eps"] > 0


def test_costs_of_the_recipes_at_a_batch_of_128() -> None:
    """Rows passed in a step, against 128 ordinary ones: at most a quarter more, and a tenth more for light."""

    def ratio(recipe: str) -> float:
        method = AdversarialPerturbation.of(AdversarialPerturbation.defaults("cpu", 16, recipe))
        return 1 + method.extra_rows() / 128

    assert ratio("light") <= 1.10 < ratio("balanced") <= 1.25 < ratio("strong") <= 1.5


def test_recipe_wins_over_scale_and_codebook(key: Key) -> None:
    shared = dict(AdversarialPerturbation.for_codebook(16))
    light = dict(AdversarialPerturbation.recipes["light"])
    assert AdversarialPerturbation.defaults("cpu", 16, "light") == {"fraction": 0.02, **shared, **light}
    found = AdversarialPerturbation.for_key(book(key), scale="paper", recipe="light", rows=8)
    assert found == AdversarialPerturbation(**{**shared, **light, "rows": 8})


def test_a_value_for_a_key_is_what_the_name_gives(net: TinyNet, key: Key) -> None:
    """A value built by hand has the paper's defaults; ``for_key`` has those of the name."""
    how: dict[str, Any] = {"train": {"max_steps": 1}, "device": "cpu"}
    for own in (book(key), key):
        named = indelible.embed(net, stripes(64), own, "app", **how).record.settings["method"]
        assert AdversarialPerturbation.for_key(own).to_json() == named
        assert AdversarialPerturbation.for_key(own, rows=4).to_json() == {**named, "rows": 4}
        assert AdversarialPerturbation().to_json() != named
    assert AdversarialPerturbation.for_key(book(key)) == AdversarialPerturbation.for_key(book(key), recipe="balanced")


def test_normalize_is_an_argument_of_embed(net: TinyNet, key: Key) -> None:
    by = ((0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
    how: dict[str, Any] = {"epochs": 1, "batch_size": 32}
    made = indelible.embed(net, stripes(64), key, "vanilla", normalize=by, train=how, device="cpu")
    assert made.record.settings["train"]["normalize"] == [list(row) for row in by]
    with pytest.raises(InputError, match=r"normalize is an argument of its own.*normalize=\(mean, std\)"):
        indelible.embed(net, stripes(64), key, "vanilla", train={**how, "normalize": by})
    kept = indelible.TrainSettings.from_json(made.record.settings["train"])
    with pytest.raises(InputError, match="normalize is an argument of its own"):
        indelible.embed(net, stripes(64), key, "vanilla", train=kept)
    again = indelible.embed(net, stripes(64), key, "vanilla", normalize=by, train=kept, device="cpu")
    assert again.record.metrics["model_digest"] == made.record.metrics["model_digest"]


def test_recipes_are_refused_where_they_would_change_nothing(net: TinyNet, key: Key) -> None:
    own = book(key)
    for method in (Vanilla, ExponentialWeights):
        with pytest.raises(InputError, match=r"has no recipe 'light'. Leave the recipe out, or .* that has it: app\."):
            method.for_key(own, recipe="light")
    with pytest.raises(UnknownNameError, match="unknown recipe 'lite': choose one of balanced, light, strong"):
        AdversarialPerturbation.for_key(own, recipe="lite")
    with pytest.raises(InputError, match="recipe 'light' is for codebooks, and this key has one class"):
        AdversarialPerturbation.for_key(key, recipe="light")
    for value in (Vanilla(), "app", AdversarialPerturbation()):
        with pytest.raises(InputError, match=r"Give method=\w+.for_key\(key, recipe='light'\)"):
            indelible.embed(net, stripes(64), own, value, recipe="light")  # type: ignore[call-arg]
