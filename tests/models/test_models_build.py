"""build_model: seeds, a user's own builder, and what it refuses."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from indelible.base.errors import InputError, UnknownNameError
from indelible.models import build_model


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def small(**settings: Any) -> nn.Module:
    return build_model("resnet-w8", classes=10, shape=(1, 28, 28), **settings)


@pytest.mark.parametrize("name", ["resnet-w8", "resnet-18", "mobilenet-v2", "vit-tiny"])
def test_a_seed_decides_the_weights_and_nothing_else(name: str) -> None:
    before = torch.get_rng_state()
    first = build_model(name, classes=10, shape=(3, 32, 32), seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert same(first, build_model(name, classes=10, shape=(3, 32, 32), seed=5))
    assert not same(first, build_model(name, classes=10, shape=(3, 32, 32), seed=6))


def test_without_a_seed_the_global_generator_decides() -> None:
    torch.manual_seed(1)
    first = small()
    second = small()
    assert not same(first, second)
    torch.manual_seed(1)
    assert same(first, small())


def test_the_generator_is_restored_when_building_fails(own: Path) -> None:
    (own / "failing.py").write_text("import torch\ndef build():\n    torch.rand(9)\n    raise ZeroDivisionError\n")
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        build_model("failing:build", classes=2, shape=(1, 4, 4), seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnet18': choose one of .*vit-tiny.*'resnet-18'\?"):
        build_model("resnet18", classes=10, shape=(3, 32, 32))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": 1}, "at least 2 classes, got classes=1"),
        ({"classes": 2.5}, "whole number"),
        ({"shape": (28, 28)}, r"\(channels, height, width\), each at least 1, got \(28, 28\)"),
        ({"shape": (1, 28.0, 28)}, "three whole numbers"),
        ({"shape": 28}, "three whole numbers"),
        ({"shape": (0, 28, 28)}, r"each at least 1, got \(0, 28, 28\)"),
        ({"shape": (1, 28, 27)}, "at least 28x28 pixels, got 28x27"),
        ({"stem": "medium"}, "no stem 'medium': choose one of small, large"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model("resnet-w8", **{"classes": 10, "shape": (1, 28, 28), **settings})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a user's networks, which is where the user works."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "nets.py").write_text(
        textwrap.dedent(
            """
            import math
            from torch import nn

            def flat(*, classes, shape):
                return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

            def torch_style(num_classes=1000):
                return nn.Linear(2, num_classes)

            def fixed():
                return nn.Linear(2, 3)

            def anything(**settings):
                model = nn.Identity()
                model.settings = settings
                return model

            def both(num_classes, **settings):
                model = nn.Linear(2, num_classes)
                model.settings = settings
                return model

            def demanding(classes, depth):
                return nn.Linear(2, classes)

            def text():
                return "a network"

            class Net(nn.Linear):
                def __init__(self, classes):
                    super().__init__(2, classes)

                @classmethod
                def wide(cls, classes):
                    return cls(2 * classes)

            number = 7
            """
        )
    )
    (tmp_path / "needs.py").write_text("import surely_not_installed\n")
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in {"mine", "needs", "failing"}:
            del sys.modules[name]


def test_own_builder_gets_classes_and_shape(own: Path) -> None:
    path = list(sys.path)
    model = build_model("mine.nets:flat", classes=4, shape=(1, 5, 6), seed=0)
    assert model(torch.zeros(2, 1, 5, 6)).shape == (2, 4)
    assert same(model, build_model("mine.nets:flat", classes=4, shape=(1, 5, 6), seed=0))
    assert sys.path == path


@pytest.mark.parametrize(
    ("function", "out_features"), [("torch_style", 4), ("fixed", 3), ("both", 4), ("Net", 4), ("Net.wide", 8)]
)
def test_own_builders_of_other_signatures(own: Path, function: str, out_features: int) -> None:
    model = build_model(f"mine.nets:{function}", classes=4, shape=(1, 5, 6))
    assert isinstance(model, nn.Linear)
    assert model.out_features == out_features


def test_own_builder_that_takes_any_keyword(own: Path) -> None:
    model: Any = build_model("mine.nets:anything", classes=4, shape=(1, 5, 6))
    assert model.settings == {"classes": 4, "shape": (1, 5, 6)}
    model = build_model("mine.nets:both", classes=4, shape=(1, 5, 6))
    assert model.settings == {"shape": (1, 5, 6)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent_package.nets:build", "there is no module 'absent_package'.*PYTHONPATH"),
        ("mine.absent:build", r"there is no module 'mine\.absent'"),
        ("mine.nets:absent", r"module 'mine\.nets' has no 'absent'"),
        ("mine.nets:Net.absent", r"has no 'Net\.absent'"),
        ("mine.nets:number", "is of type int, not a function"),
        ("mine.nets:text", r"must return a torch\.nn\.Module, got str"),
        ("mine.nets:demanding", "missing a required argument: 'depth'.*default"),
        ("mine.nets:", "expected 'package.module:function'"),
        (":build", "expected 'package.module:function'"),
        (".nets:build", "expected 'package.module:function'"),
    ],
)
def test_own_builder_errors(own: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_model(name, classes=4, shape=(1, 5, 6))


def test_a_stem_is_not_for_own_builders(own: Path) -> None:
    with pytest.raises(InputError, match="is your own"):
        build_model("mine.nets:fixed", classes=4, shape=(1, 5, 6), stem="small")


def test_an_import_inside_the_users_module_keeps_its_own_error(own: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        build_model("needs:build", classes=4, shape=(1, 5, 6))
