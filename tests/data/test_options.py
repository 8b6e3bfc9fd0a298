"""Options behind the name of a data set."""

import pytest
import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.data import load
from indelible.data.catalog import split_options


def test_names_without_options_stay() -> None:
    assert split_options("cifar10") == ("cifar10", {})


def test_options_are_read() -> None:
    bare, options = split_options("data/imagenet?size=224&per_class=500,50&classes=list.txt")
    assert bare == "data/imagenet"
    assert options == {"size": 224, "per_class": (500, 50), "classes": "list.txt"}


def test_a_part_of_a_set_is_the_same_every_time() -> None:
    train, test = load("fashion-mini?train=100&test=50")
    again, _ = load("fashion-mini?train=100")
    whole, everything = load("fashion-mini")
    assert (len(train), len(test), len(again)) == (100, 50, 100)
    assert len(everything) > 50
    assert train.digest() == again.digest()
    assert train.classes == whole.classes
    # A sample, not the beginning: all classes occur, whatever the order of the set.
    assert len(torch.unique(train.labels)) == len(train.classes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fashion-mini?train=many", "whole numbers"),
        ("fashion-mini?train=0", "must be at least 1"),
        ("fashion-mini?per_class=5", "whole numbers"),
        ("fashion-mini?train=1000000", "has 7500 train images, got train=1000000"),
    ],
)
def test_bad_numbers(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(name)


def test_unknown_options() -> None:
    with pytest.raises(UnknownNameError, match="option of a data set 'trian'"):
        load("fashion-mini?trian=5")
