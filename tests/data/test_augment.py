"""Augmentation against a reference that handles one image and one pixel at a time."""

import pytest
import torch
from torch import Tensor

from indelible.base.errors import UnknownNameError
from indelible.data.augment import AUGMENTATIONS, Augmentation, augment, crop, flip, normalise, to_float
from tests.data.makers import pixels


def slow_crop(image: Tensor, top: int, left: int, padding: int) -> Tensor:
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                y, x = row + top - padding, column + left - padding
                if 0 <= y < height and 0 <= x < width:
                    result[channel, row, column] = image[channel, y, x]
    return result


def slow_flip(image: Tensor) -> Tensor:
    width = image.shape[-1]
    return torch.stack([image[..., width - 1 - column] for column in range(width)], dim=-1)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 9), (2, 16, 4)])
@pytest.mark.parametrize("padding", [1, 4])
def test_crop_against_the_reference(shape: tuple[int, int, int], padding: int) -> None:
    images = torch.from_numpy(pixels(6, shape))
    random = torch.Generator().manual_seed(1)
    top, left = torch.randint(0, 2 * padding + 1, (2, 6), generator=random)
    expected = [slow_crop(image, int(y), int(x), padding) for image, y, x in zip(images, top, left, strict=True)]
    assert torch.equal(crop(images, top, left, padding), torch.stack(expected))


def test_flip_against_the_reference() -> None:
    images = torch.from_numpy(pixels(4, (3, 5, 6)))
    found = flip(images, torch.tensor([True, False, True, False]))
    assert torch.equal(found, torch.stack([slow_flip(images[0]), images[1], slow_flip(images[2]), images[3]]))


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_augment_is_a_function_of_its_generator(kind: Augmentation) -> None:
    images = torch.from_numpy(pixels(64, (3, 32, 32)))
    first = augment(images, kind, torch.Generator().manual_seed(5))
    again = augment(images, kind, torch.Generator().manual_seed(5))
    other = augment(images, kind, torch.Generator().manual_seed(6))
    assert first.dtype == torch.uint8
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (kind == "none")


def test_whole_augmentation_against_the_reference() -> None:
    images = torch.from_numpy(pixels(16, (3, 32, 32)))
    found = augment(images, "crop-flip", torch.Generator().manual_seed(2))
    random = torch.Generator().manual_seed(2)
    places = torch.randint(0, 9, (2, 16), generator=random)
    flips = torch.rand(16, generator=random) < 0.5
    expected = []
    for index in range(16):
        image = slow_crop(images[index], int(places[0, index]), int(places[1, index]), 4)
        expected.append(slow_flip(image) if flips[index] else image)
    assert torch.equal(found, torch.stack(expected))


def test_places_and_flips_cover_their_range() -> None:
    # One bright pixel in the middle shows where each crop was taken.
    images = torch.zeros(4000, 1, 16, 16, dtype=torch.uint8)
    images[:, :, 8, 8] = 1
    found = augment(images, "crop", torch.Generator().manual_seed(0)).nonzero()
    assert len(found) == 4000
    assert set(found[:, 2].tolist()) == {6, 7, 8, 9, 10}
    assert set(found[:, 3].tolist()) == {6, 7, 8, 9, 10}


def test_small_images_are_padded_by_one() -> None:
    images = torch.ones(200, 1, 4, 4, dtype=torch.uint8)
    found = augment(images, "crop", torch.Generator().manual_seed(0))
    assert set(found.sum((1, 2, 3)).tolist()) == {9, 12, 16}


def test_floats_and_normalisation_by_hand() -> None:
    images = torch.tensor([[[[0, 51]], [[255, 102]]]], dtype=torch.uint8)
    floats = to_float(images)
    assert floats.flatten().tolist() == pytest.approx([0.0, 0.2, 1.0, 0.4])
    assert normalise(floats, None) is floats
    found = normalise(floats, ((0.2, 0.5), (0.1, 0.25)))
    assert found.flatten().tolist() == pytest.approx([-2.0, 0.0, 2.0, -0.4], abs=1e-6)


def test_unknown_augmentation_lists_the_choices() -> None:
    with pytest.raises(UnknownNameError, match="crop-flip"):
        augment(torch.zeros(1, 1, 4, 4), "flip-crop", torch.Generator())  # type: ignore[arg-type]


def test_nothing_that_came_in_is_changed() -> None:
    images = torch.from_numpy(pixels(8, (3, 8, 8)))
    before = images.clone()
    flip(images, torch.ones(8, dtype=torch.bool))
    augment(images, "crop-flip", torch.Generator().manual_seed(0))
    assert torch.equal(images, before)
