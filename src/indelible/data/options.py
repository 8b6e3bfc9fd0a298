"""Options behind the name of a data set, so that one piece of text - in a run, a preset, a command - says all of it.

| option | what |
|---|---|
| ``train``, ``test`` | so many images of each split, chosen by a fixed seed: ``cifar10?train=5000&test=1000`` |
| ``size`` | of an image folder: height and width of the pictures |
| ``classes`` | of an image folder: path of a list of its classes |
| ``per_class`` | of an image folder: training and test images of each class: ``imagenet?size=224&per_class=500,50`` |
"""

from dataclasses import dataclass
from urllib.parse import parse_qsl

import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.seeding import generator
from indelible.data.images import Data

__all__ = ["DataOptions", "split_options"]

_NAMES = ("train", "test", "size", "classes", "per_class")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What stands behind a name; the table in the module's header explains each option."""

    train: int | None = None
    test: int | None = None
    size: int | None = None
    classes: str | None = None
    per_class: tuple[int | None, int | None] | None = None

    def part(self, pair: tuple[Data, Data]) -> tuple[Data, Data]:
        """Return the part of ``(train, test)`` that is asked for."""
        return _some(pair[0], self.train, "train"), _some(pair[1], self.test, "test")


def split_options(name: str) -> tuple[str, DataOptions]:
    """Split ``name?option=value&...`` into the bare name and its options.

    Raises:
        InputError: An option is unknown, or its value is not a number.
    """
    bare, mark, text = name.partition("?")
    if not mark:
        return bare, DataOptions()
    given = dict(parse_qsl(text, keep_blank_values=True))
    for option in given:
        if option not in _NAMES:
            raise UnknownNameError("option of a data set", option, _NAMES)
    try:
        numbers = {option: int(given[option]) for option in ("train", "test", "size") if option in given}
        per_class = None
        if "per_class" in given:
            first, second = given["per_class"].split(",")
            per_class = int(first), int(second)
    except ValueError as error:
        raise InputError(
            f"options of a data set are whole numbers, such as cifar10?train=5000&test=1000 or per_class=500,50, but "
            f"{name!r} came."
        ) from error
    if min([1, *numbers.values()]) < 1:
        raise InputError(f"numbers in {name!r} start at 1.")
    return bare, DataOptions(**numbers, classes=given.get("classes"), per_class=per_class)


def _some(data: Data, count: int | None, split: str) -> Data:
    if count is None:
        return data
    if count > len(data):
        raise InputError(f"{count} {split} images are asked for, but {data.name!r} has {len(data)}. Ask for fewer.")
    order = torch.randperm(len(data), generator=generator(0, f"{split} images"))
    return data.subset(order[:count].sort().values)
