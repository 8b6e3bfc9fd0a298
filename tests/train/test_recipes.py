"""Recipes: what they change, and what wins."""

import pytest

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.embed import AdversarialPerturbation, Vanilla
from indelible.keys.key import Key
from indelible.train.recipes import RECIPES
from tests.conftest import TinyNet, stripes


def test_fast_on_each_preset_and_start() -> None:
    fast = RECIPES["fast"]
    scratch, trained = fast.changes("cpu", device="cpu"), fast.changes("cpu", "trained", device="cpu")
    assert (scratch["epochs"], scratch["augmentation"], scratch["schedule"].kind) == (7, "crop-alternate", "one-cycle")
    assert "epochs" not in trained
    assert "compile" not in scratch
    assert fast.changes("paper", device="cuda:1")["compile"] is True


def test_light_leaves_the_training_alone() -> None:
    assert RECIPES["light"].changes("cpu", device="cpu") == {}
    assert RECIPES["light"].changes("paper", device="cuda") == {}


def test_a_run_with_the_recipe(net: TinyNet, key: Key) -> None:
    embedded = indelible.embed(
        net, stripes(64), key, preset="cpu", recipe="fast", train={"epochs": 1, "batch_size": 32}, rows=4, device="cpu"
    )
    train, method = embedded.record.settings["train"], embedded.record.settings["method"]
    assert (train["augmentation"], train["nesterov"], train["epochs"]) == ("crop-alternate", True, 1)
    assert (method["rows"], method["clean_rows"], method["every"]) == (4, 16, 2)
    # Of two steps one has the passes: 4 + 16 rows, twice.
    assert embedded.record.images == 64 + 2 * (4 + 16)
    with pytest.raises(UnknownNameError, match="fast"):
        indelible.embed(net, stripes(64), key, recipe="faster", device="cpu")


def test_methods_without_recipes_refuse_them_by_name_and_value(net: TinyNet, key: Key) -> None:
    for method in ("vanilla", "ew", Vanilla()):
        with pytest.raises(InputError, match=r"has no recipe 'fast'. Leave the recipe out, or .* that has it: app\."):
            indelible.embed(net, stripes(64), key, method, recipe="fast")
    with pytest.raises(UnknownNameError, match="unknown recipe 'faster'"):
        indelible.embed(net, stripes(64), key, "vanilla", recipe="faster")
    with pytest.raises(UnknownNameError, match="unknown recipe 'faster': choose one of fast, light"):
        indelible.embed(net, stripes(64), key, Vanilla(), recipe="faster")
    with pytest.raises(
        InputError, match="the model has 9 outputs"
    ):  # a method value with recipes gets as far as the data
        indelible.embed(TinyNet(classes=9), stripes(64), key, AdversarialPerturbation(), recipe="light", device="cpu")
