from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from indelible.base.errors import InputError
from indelible.data.batches import Batches
from indelible.data.convert import from_dataset, image_of, label_of
from indelible.data.images import Data, ImageData, StreamData, memory_limit
from tests.data.makers import labels, pixels

COUNT, SHAPE = 23, (3, 6, 5)
IMAGES, LABELS = torch.from_numpy(pixels(COUNT, SHAPE)), torch.tensor(labels(COUNT, 4))
MEMORY = ImageData(IMAGES, LABELS, ("a", "b", "c", "d"), "s")


class Counting:
    """A reader that counts what it decodes in this process."""

    def __init__(self, images: Tensor = IMAGES) -> None:
        self.images, self.decoded, self.shape = images, list[int](), SHAPE

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        self.decoded.append(index)
        return self.images[index]


def stream(reader: Any = None, workers: int = 0) -> StreamData:
    return StreamData(
        reader=reader or Counting(),
        rows=torch.arange(COUNT),
        labels=LABELS,
        classes=MEMORY.classes,
        name="s",
        workers=workers,
    )


def assert_same(one: Data, other: Data) -> None:
    order = torch.randperm(len(other), generator=torch.Generator().manual_seed(1))
    cpu = torch.device("cpu")
    pairs = zip(one.iterate(order, 4, cpu), other.iterate(order, 4, cpu), strict=True)
    for (images, numbers), (wanted_images, wanted_numbers) in pairs:
        assert torch.equal(images, wanted_images)
        assert torch.equal(numbers, wanted_numbers)
    assert one.digest() == other.digest()


@pytest.mark.parametrize("workers", [0, 2])
def test_equals_memory_batch_for_batch(workers: int) -> None:
    data = stream(workers=workers)
    assert isinstance(data, Data)
    assert_same(data, MEMORY)
    part = torch.tensor([20, 3, 3, 7])
    assert_same(data.subset(part), MEMORY.subset(part))
    assert data.gather(part).digest() == MEMORY.subset(part).digest()
    new = torch.full((2, *SHAPE), 9, dtype=torch.uint8)
    at, numbers = torch.tensor([5, 20]), torch.tensor([0, 3])
    assert_same(data.replaced(at, new, numbers), MEMORY.replaced(at, new, numbers))
    twice = (
        data.replaced(at, new, numbers)
        .subset(torch.tensor([20, 0, 5]))
        .replaced(torch.tensor([0]), new[:1] + 1, at[:1] * 0)
    )
    wanted = (
        MEMORY.replaced(at, new, numbers)
        .subset(torch.tensor([20, 0, 5]))
        .replaced(torch.tensor([0]), new[:1] + 1, at[:1] * 0)
    )
    assert_same(twice, wanted)
    assert_same(data, MEMORY)


@pytest.mark.parametrize("workers", [0, 2])
def test_training_batches_are_the_same(workers: int) -> None:
    found = list(Batches(data=stream(workers=workers), batch_size=8, seed=3).epoch(1))
    wanted = list(Batches(data=MEMORY, batch_size=8, seed=3).epoch(1))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(found, wanted, strict=True))


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(InputError, match=r"must be int64 of shape \(23,\)"):
        StreamData(reader=Counting(), rows=torch.arange(COUNT), labels=LABELS[:4], classes=("a",))
    with pytest.raises(InputError, match=r"must lie in 0\.\.0"):
        StreamData(reader=Counting(), rows=torch.arange(COUNT), labels=LABELS, classes=("a",))


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


def _picture(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    "convert",
    [lambda x: x, lambda x: x.float() / 255, lambda x: x.numpy(), lambda x: x.permute(1, 2, 0).numpy(), _picture],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_datasets_of_every_kind_of_item(convert: Any, streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", "0" if streamed else "1")
    items = [(convert(image), label) for image, label in zip(IMAGES, LABELS.tolist(), strict=True)]
    data = from_dataset(Items(items), classes=["a", "b", "c", "d"], name="s")
    assert isinstance(data, StreamData if streamed else ImageData)
    assert_same(data, MEMORY)


def test_labels_may_be_any_whole_number() -> None:
    for value in (2, np.int32(2), torch.tensor(2), torch.tensor([2], dtype=torch.uint8), np.array(2)):
        assert label_of(value, "x[0]") == 2
    for wrong in (2.0, True, "2", None, torch.tensor(2.0), torch.tensor([0, 1]), torch.tensor(True), np.float32(2)):
        with pytest.raises(InputError, match=r"label of x\[0\] must be a whole number"):
            label_of(wrong, "x[0]")


def test_pictures_of_other_modes_become_coloured() -> None:
    assert image_of(Image.new("L", (5, 4)), "x").shape == (1, 4, 5)
    for mode in ("P", "RGBA", "CMYK", "1"):
        assert image_of(Image.new(mode, (5, 4)), "x").shape == (3, 4, 5)


GOOD = (IMAGES[0], 1)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "is empty"),
        ([GOOD, (IMAGES[0], 1, 2)], r"item 1 of 's' must be a pair \(image, label\), got a tuple of 3"),
        ([GOOD, IMAGES[0]], "item 1 of 's' must be a pair"),
        ([GOOD, ("cat.png", 1)], r"image s\[1\] must be a PIL image, a tensor or an array, got a str"),
        ([GOOD, (IMAGES[0], "cat")], r"label of s\[1\] must be a whole number"),
        ([GOOD, GOOD, (IMAGES[0, :, :4], 1)], r"item 2 of 's' has the shape \(3, 4, 5\), but item 0 has \(3, 6, 5\)"),
        ([GOOD, (IMAGES[0].float(), 1)], r"float images of 's\[1\]' must lie in \[0, 1\]"),
        ([GOOD, (IMAGES[:2], 1)], r"image s\[1\] must have the shape \(C, H, W\)"),
        ([GOOD, ValueError("broken file")], r"item 1 of 's' cannot be read: ValueError\('broken file'\)"),
        ([GOOD, (IMAGES[0], 9)], r"must lie in 0\.\.3"),
    ],
)
@pytest.mark.parametrize("gigabytes", ["0", "1"])
def test_wrong_items_are_refused_by_index(
    items: list[Any], reason: str, gigabytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", gigabytes)
    with pytest.raises(InputError, match=reason):
        from_dataset(Items(items), classes=4, name="s")


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Lengthless(Dataset[Any]):
    pass


def test_other_datasets_are_refused() -> None:
    with pytest.raises(InputError, match=r"iterable data set.*map-style"):
        from_dataset(Endless())
    with pytest.raises(InputError, match="has no length"):
        from_dataset(Lengthless())


class Fickle:
    """A reader one of whose files has been damaged since it was listed."""

    shape = SHAPE

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Tensor:
        if index == 11:
            raise InputError("picture 11 has another shape.")
        return IMAGES[index]


def test_error_in_a_worker_stays_one_line() -> None:
    for workers in (0, 2):
        with pytest.raises(InputError) as caught:
            stream(Fickle(), workers=workers).digest()
        assert str(caught.value) == "picture 11 has another shape."


def test_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDELIBLE_MEMORY_GB", raising=False)
    assert memory_limit() > 1 << 20
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", "0.5")
    assert memory_limit() == 1 << 29
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", "0")
    assert isinstance(from_dataset(TensorDataset(IMAGES, LABELS)), StreamData)
    monkeypatch.setenv("INDELIBLE_MEMORY_GB", "much")
    with pytest.raises(InputError, match="number of gigabytes, got 'much'"):
        memory_limit()
