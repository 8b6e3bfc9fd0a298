"""Every kind of setting: what fits, what does not, and the words for it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import nn

import indelible
from indelible.base.checks import (
    check_batch,
    check_finite_settings,
    check_image_shape,
    check_is_key,
    check_module,
    check_ranges,
    check_settings,
    check_trainable,
    key_numbers,
    whole_number,
)
from indelible.base.errors import InputError, UnknownNameError
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
from indelible.train import TrainSettings
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value


@dataclass(frozen=True, kw_only=True)
class Example:
    rate: float = 0.1
    count: int = 1
    flag: bool = True
    word: Literal["a", "b"] = "a"
    limit: float | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[float, ...] = ()
    nested: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    constant: ClassVar[int] = 3


GOOD: dict[str, list[Any]] = {
    "rate": [0.5, 1], "count": [3], "flag": [False], "word": ["a"], "limit": [None, 2.0], "pair": [(1, 2.0), [0, 1]],
    "many": [(), [1, 2, 3]], "nested": [None, ([0.1], [0.2])],
}  # fmt: skip
BAD: dict[str, list[Any]] = {
    "rate": ["x", None, True, [1], math.inf, math.nan], "count": [1.5, "1", False], "flag": [1, "yes"],
    "word": [1], "limit": ["none"],
    "pair": [(1,), (1, "x"), 3], "many": [["x"], 1], "nested": [[1, 2], ([0.1],)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_what_fits(name: str, value: Any) -> None:
    check_settings(Example, {name: value}, "setting")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_does_not(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"the setting '{name}' must be .*, got"):
        check_settings(Example, {name: value}, "setting")


@pytest.mark.parametrize("name", ["speed", "constant"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match="count, flag, limit"):
        check_settings(Example, {name: 1}, "setting")


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5), torch.tensor(5)])
def test_whole_numbers_of_any_kind_become_pythons(value: Any) -> None:
    assert whole_number(value, "classes") == 5
    assert type(whole_number(value, "classes")) is int


@pytest.mark.parametrize(
    ("value", "got"), [("5", "'5'"), (5.0, "5.0"), (True, "True"), (None, "None"), ([5], "a list")]
)
def test_what_is_no_whole_number(value: Any, got: str) -> None:
    with pytest.raises(InputError, match=rf"classes must be a whole number, got {got}\. Example: classes=5"):
        whole_number(value, "classes")


def test_shapes() -> None:
    assert check_image_shape([1, np.int64(28), 28]) == (1, 28, 28)
    assert check_image_shape(torch.Size((3, 32, 3))) == (3, 32, 3)  # three channels first: narrow, but a shape
    assert key_numbers(classes=np.int64(4), shape=[3, 32, 32], target=np.int8(1)) == (4, (3, 32, 32), 1, None)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((32, 32, 3), r"reads as \(height, width, channels\). Give \(3, 32, 32\)"),
        ((28, 30, 1), r"Give \(1, 28, 30\)"),
        (32, "three whole numbers .* got 32"),
        ((3, 32.0, 32), "three whole numbers"),
        ("3x32x32", "three whole numbers"),
        ((32, 32), "each at least 1, got"),
        ((3, 0, 32), "each at least 1, got"),
    ],
)
def test_wrong_shapes(shape: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_image_shape(shape)
    with pytest.raises(InputError, match=said):
        Key.create(kind="noise", classes=4, shape=shape)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"classes": "5"}, "classes must be a whole number, got '5'"),
        ({"classes": 5.0}, "classes must be a whole number, got 5.0"),
        ({"target": "cat"}, "target must be a whole number, got 'cat'"),
        ({"count": "5", "labels": "keyed"}, "count must be a whole number, got '5'"),
        ({"size": "1"}, "size must be a finite number, got '1'"),
        ({"strength": math.nan}, "strength must be a finite number, got nan"),
    ],
)
def test_wrong_numbers_of_a_key(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Key.create(**{"kind": "content", "classes": 5, "shape": SHAPE, **wrong})


def test_keys_with_numbers_of_numpy_are_those_with_pythons() -> None:
    given: dict[str, Any] = {"classes": np.int64(5), "shape": list(SHAPE), "target": np.int64(1)}
    assert Key.create(**given, secret=SECRET) == Key.create(classes=5, shape=SHAPE, target=1, secret=SECRET)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "key must be a Key, got None. Make one with indelible.Key.create"),
        ("my/key", r"got the path 'my/key'. Load it: indelible.Key.load\('my/key'\)"),
        (Path("my/key"), "got the path 'my/key'"),
        ({}, "got a dict"),
    ],
)
def test_what_is_no_key(value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_is_key(value, Key)
    uses: list[Callable[[], Any]] = [
        lambda: indelible.embed(TinyNet(), stripes(8), value),
        lambda: indelible.verify(TinyNet(), value, stripes(8)),
        lambda: indelible.APP(TinyNet(), value, stripes(8)),
    ]
    for use in uses:
        with pytest.raises(InputError, match=said):
            use()


def _lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TinyNet().state_dict(), "got a mapping. If it is a state_dict: build the network and load it"),
        (lambda: torch.relu, "got a function. Give the module itself"),
        (lambda: TinyNet, r"got the class TinyNet. Give an instance: TinyNet\(...\)"),
        (lambda: "resnet-mini", "got 'resnet-mini'. Build a network by its name with indelible.build_model"),
        (lambda: None, "got None"),
        (lambda: 3, "got 3"),
        (_lazy, "lazy layers without weights. Pass a batch through it first"),
    ],
)
def test_what_is_no_model(make: Callable[[], Any], said: str, key: Key) -> None:
    model = make()
    with pytest.raises(InputError, match=said):
        check_module(model)
    uses: list[Callable[[], Any]] = [
        lambda: indelible.embed(model, stripes(8), key),
        lambda: indelible.attack(model, stripes(8)),
        lambda: indelible.APP(model, key, stripes(8)),
    ]
    for use in uses:
        with pytest.raises(InputError, match=said):
            use()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit announces its end
def test_scripted_and_compiled_models_are_asked_but_not_trained(key: Key) -> None:
    scripted = torch.jit.trace(TinyNet().eval(), torch.zeros(1, *SHAPE))
    compiled = TinyNet()
    compiled._orig_mod = TinyNet()  # what torch.compile's wrapper has; the compiler itself takes seconds to import
    for model, said in ((scripted, "got a scripted or traced one"), (compiled, "got a compiled one")):
        check_module(model)
        with pytest.raises(InputError, match=said):
            check_trainable(model)
        with pytest.raises(InputError, match=said):
            indelible.embed(model, stripes(8), key)
        with pytest.raises(InputError, match=said):
            indelible.attack(model, stripes(8))
    assert not indelible.verify(scripted, key, stripes(60), decoys=2).owned


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (torch.zeros(4, 3, 32, 32, dtype=torch.int64), "got int64. Convert them as for the model"),
        (torch.zeros(4, 3, 16, 16), r"of shape \(N, 3, 32, 32\), .* got the shape \(4, 3, 16, 16\)"),
        (torch.zeros(3, 32, 32), r"got the shape \(3, 32, 32\)"),
        (torch.zeros(0, 3, 32, 32), "got an empty batch"),
        (np.zeros((4, 3, 32, 32), np.float32), "got a ndarray"),
    ],
)
def test_wrong_batches_of_an_own_loop(batch: Any, said: str, key: Key) -> None:
    check_batch(torch.zeros(4, *SHAPE, dtype=torch.bfloat16), SHAPE)
    with pytest.raises(InputError, match=said):
        check_batch(batch, SHAPE)
    model = TinyNet()
    mark = indelible.APP(model, key, stripes(60), method=method_value("app", key, "paper", rows=8, clean_rows=8))
    with pytest.raises(InputError, match=said):
        mark.backward(batch)
    assert mark.calls == 0
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinite_settings_are_refused_by_name(value: float, key: Key) -> None:
    with pytest.raises(InputError, match="the setting 'rate' of Example must be a finite number, got"):
        check_finite_settings(Example(rate=value))
    with pytest.raises(InputError, match="'alpha' must be a finite number"):
        indelible.embed(TinyNet(), stripes(8), key, method_value("app", key, alpha=value))
    with pytest.raises(InputError, match="the setting 'eps' of AdversarialPerturbation must be a finite number"):
        indelible.embed(TinyNet(), stripes(8), key, AdversarialPerturbation(eps=abs(value)))
    with pytest.raises(InputError, match="'lr' of TrainSettings must be a finite number"):
        TrainSettings(lr=value)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "message"),
    [
        ("[0, 1)", 0.0, 1.0, r"share must lie in \[0, 1\), got 1\. The default is 0\.5\."),
        ("(0, 1]", 1.0, 0.0, r"share must lie in \(0, 1\], got 0\."),
        ("[2, inf)", 2.0, 1.5, r"share must be at least 2, got 1\.5\."),
        ("(0, inf)", 0.1, 0.0, r"share must be greater than 0, got 0\."),
        ("[0, inf)", 0.0, math.nan, r"share must be at least 0, got nan\."),
    ],
)
def test_a_setting_outside_its_interval_is_refused(interval: str, inside: float, outside: float, message: str) -> None:
    @dataclass(frozen=True)
    class Settings:
        share: float | None = 0.5

    check_ranges(Settings(inside), {"share": interval})
    check_ranges(Settings(None), {"share": interval})
    with pytest.raises(InputError, match=message):
        check_ranges(Settings(outside), {"share": interval})
