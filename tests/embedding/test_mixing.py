"""One per cent replaced, never of the target class; negatives keep their labels and are no decoys of the test."""

import pytest
import torch

from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding.mixing import mix, watermark_count
from indelible.keys.key import Key
from tests.conftest import SECRET, SHAPE, stripes


@pytest.mark.parametrize(("size", "fraction", "count"), [(40_000, 0.01, 400), (60, 0.01, 1), (150, 0.02, 3)])
def test_count(size: int, fraction: float, count: int) -> None:
    assert watermark_count(size, fraction) == count


def test_the_replaced_rows_are_the_samples_and_nothing_else_changes(data: ImageData, key: Key) -> None:
    mixed, samples = mix(data, key, 0.1)
    assert isinstance(mixed, ImageData)
    assert len(samples) == 32
    assert torch.equal(mixed.images[samples.carriers], samples.images)
    assert bool((mixed.labels[samples.carriers] == key.one_target).all())
    assert not bool((data.labels[samples.carriers] == key.one_target).any())
    rest = torch.ones(320, dtype=torch.bool)
    rest[samples.carriers] = False
    assert torch.equal(mixed.images[rest], data.images[rest])
    assert torch.equal(mixed.labels[rest], data.labels[rest])


@pytest.mark.parametrize("kind", ["content", "noise"])
def test_negatives(data: ImageData, kind: str) -> None:
    key = Key.create(kind=kind, classes=4, shape=SHAPE, target=0, secret=SECRET)
    plain, samples = mix(data, key, 0.1)
    mixed, again = mix(data, key, 0.1, negatives=0.05)
    assert isinstance(mixed, ImageData)
    assert isinstance(plain, ImageData)
    assert torch.equal(samples.images, again.images)
    assert torch.equal(mixed.labels, plain.labels)
    changed = (mixed.images != plain.images).flatten(1).any(1).nonzero().flatten()
    assert len(changed) == 16
    assert not set(changed.tolist()) & set(samples.carriers.tolist())
    # A negative is neither the key's own mark nor one that a verification would ask.
    asked = [key, *(key.decoy(number) for number in range(100))]
    for row in changed.tolist():
        for one in asked:
            mark = one.mark()
            assert not torch.equal(mark.apply(data.images[row : row + 1])[0], mixed.images[row])


def test_refusals(data: ImageData, key: Key) -> None:
    for fraction in (0.0, 1.0, -0.1):
        with pytest.raises(InputError, match="between 0 and 1"):
            mix(data, key, fraction)
    with pytest.raises(InputError, match="only"):
        mix(data, key, 0.5, negatives=0.9)
    unrelated = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, secret=SECRET)
    with pytest.raises(InputError, match="unrelated"):
        mix(stripes(320), unrelated, 0.1, negatives=0.1)
