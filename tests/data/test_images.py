import hashlib

import pytest
import torch

from indelible.base.errors import InputError
from indelible.data.images import Data, ImageData, check_labels

IMAGES = torch.arange(5 * 3 * 2 * 2, dtype=torch.uint8).view(5, 3, 2, 2)
LABELS = torch.tensor([0, 1, 2, 1, 0])


@pytest.fixture
def small() -> ImageData:
    return ImageData(IMAGES.clone(), LABELS.clone(), ("a", "b", "c"), "small")


def test_surface(small: ImageData) -> None:
    assert isinstance(small, Data)
    assert len(small) == 5
    assert small.shape == (3, 2, 2)
    assert repr(small) == "ImageData('small', 5 images of (3, 2, 2), 3 classes)"
    assert small.to("cpu").digest() == small.digest()


def test_subset_keeps_the_order_asked_for(small: ImageData) -> None:
    part = small.subset(torch.tensor([4, 0, 0]))
    assert part.labels.tolist() == [0, 0, 0]
    assert part.images[:, 0, 0, 0].tolist() == [48, 0, 0]
    assert part.classes == small.classes
    assert small.gather(torch.tensor([4, 0, 0])).digest() == part.digest()


def test_replaced_leaves_the_original_alone(small: ImageData) -> None:
    before = small.digest()
    new = small.replaced(torch.tensor([3, 1]), torch.full((2, 3, 2, 2), 9, dtype=torch.uint8), torch.tensor([2, 0]))
    assert new.labels.tolist() == [0, 0, 2, 2, 0]
    assert new.images[3].unique().tolist() == [9]
    assert torch.equal(new.images[[0, 2, 4]], IMAGES[[0, 2, 4]])
    assert small.digest() == before


def test_iterate_yields_the_order_in_batches(small: ImageData) -> None:
    batches = list(small.iterate(torch.tensor([2, 1, 4, 3]), 3, torch.device("cpu")))
    assert [labels.tolist() for _, labels in batches] == [[2, 1, 0], [1]]
    assert torch.equal(batches[0][0], IMAGES[[2, 1, 4]])


def test_digest_is_what_it_says(small: ImageData) -> None:
    by_hand = hashlib.sha256(b"(('a', 'b', 'c'), (5, 3, 2, 2))")
    by_hand.update(b"".join(label.to_bytes(8, "little") for label in LABELS.tolist()))
    by_hand.update(bytes(range(60)))
    assert small.digest() == by_hand.hexdigest()
    others = [
        ImageData(IMAGES, LABELS, ("a", "b", "d")),
        ImageData(IMAGES, LABELS.roll(1), ("a", "b", "c")),
        ImageData(IMAGES.flip(0), LABELS, ("a", "b", "c")),
        ImageData(IMAGES.view(5, 3, 4, 1), LABELS, ("a", "b", "c")),
    ]
    assert len({other.digest() for other in [small, *others]}) == 5


def test_wrong_tensors_are_refused() -> None:
    with pytest.raises(InputError, match=r"must be uint8 of shape \(N, C, H, W\), got float32"):
        ImageData(IMAGES.float(), LABELS, ("a", "b", "c"))
    with pytest.raises(InputError, match=r"of shape \(5, 3, 4\)"):
        ImageData(IMAGES.view(5, 3, 4), LABELS, ("a", "b", "c"))
    with pytest.raises(InputError, match=r"labels of 'data' must be int64 of shape \(5,\)"):
        ImageData(IMAGES, LABELS[:4], ("a", "b", "c"))
    with pytest.raises(InputError, match="one for each image, got int32"):
        ImageData(IMAGES, LABELS.int(), ("a", "b", "c"))
    with pytest.raises(InputError, match=r"must lie in 0\.\.1 \(2 classes\), got 2"):
        ImageData(IMAGES, LABELS, ("a", "b"))


def test_labels_below_zero_are_refused_and_none_are_fine() -> None:
    with pytest.raises(InputError, match="got -1"):
        check_labels(torch.tensor([0, -1]), 2, 3, "x")
    check_labels(torch.empty(0, dtype=torch.int64), 0, 0, "x")
