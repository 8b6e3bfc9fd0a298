from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from indelible.base.errors import InputError
from indelible.data.augment import Share, to_float
from indelible.data.batches import Batches
from indelible.data.images import Batch, ImageData


def numbered(count: int) -> ImageData:
    """Return images whose first pixel tells which one it is."""
    images = torch.zeros(count, 1, 8, 8, dtype=torch.uint8)
    images[:, 0] = torch.arange(count, dtype=torch.uint8)[:, None, None]
    return ImageData(images, torch.arange(count) % 3, ("a", "b", "c"), "numbered")


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(first, second, strict=True)
    )


def test_epoch_sees_every_row_once() -> None:
    batches = Batches(data=numbered(50), batch_size=16, seed=0, augmentation="none")
    found = list(batches.epoch(0))
    assert [len(labels) for _, labels in found] == [16, 16, 16, 2]
    rows = torch.cat([images[:, 0, 0, 0] for images, _ in found]).mul(255).round().long()
    assert sorted(rows.tolist()) == list(range(50))
    assert torch.equal(torch.cat([labels for _, labels in found]), rows % 3)
    assert torch.equal(found[0][0], to_float(numbered(50).images[batches.order(0)[:16]]))


def test_pure_function_of_seed_epoch_and_step() -> None:
    batches = Batches(data=numbered(40), batch_size=8, seed=4)
    first = list(batches.epoch(2))
    torch.manual_seed(99)
    assert same(first, list(Batches(data=numbered(40), batch_size=8, seed=4).epoch(2)))
    assert not same(first, list(batches.epoch(3)))
    assert not same(first, list(Batches(data=numbered(40), batch_size=8, seed=5).epoch(2)))


@given(count=st.integers(2, 60), size=st.integers(2, 17), start=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_start_in_the_middle_gives_the_same_batches(count: int, size: int, start: int) -> None:
    batches = Batches(data=numbered(count), batch_size=size, seed=1)
    whole = list(batches.epoch(1))
    assert len(whole) == batches.steps
    assert same(whole[start:], list(batches.epoch(1, start=start)))
    assert all(len(labels) > 1 for _, labels in whole)


@given(
    count=st.integers(2, 80),
    share=st.integers(2, 6),
    world=st.integers(2, 4),
    kind=st.sampled_from(["none", "crop-flip"]),
)
@settings(max_examples=40, deadline=None)
def test_ranks_joined_give_the_whole_batch(count: int, share: int, world: int, kind: Any) -> None:
    """Dealt out and put together again, the rows - augmentation included - are those of one process."""

    size = share * world

    def epoch(rank: int, of: int) -> list[Batch]:
        batches = Batches(data=numbered(count), batch_size=size, seed=2, augmentation=kind, rank=rank, world=of)
        return list(batches.epoch(0))

    alone = epoch(0, 1)
    parts = [epoch(rank, world) for rank in range(world)]
    assert {len(part) for part in parts} == {len(alone)}, "every process takes the steps that one would take"
    for step, (images, labels) in enumerate(alone):
        if len(labels) < 2 * world:
            assert all(torch.equal(part[step][0], images) for part in parts), "too small to deal out: whole for each"
            continue
        joined, joined_labels = torch.empty_like(images), torch.empty_like(labels)
        for rank, part in enumerate(parts):
            joined[rank::world], joined_labels[rank::world] = part[step]
            assert len(part[step][1]) > 1
        assert torch.equal(joined, images)
        assert torch.equal(joined_labels, labels)


def test_start_in_the_middle_with_several_processes() -> None:
    batches = Batches(data=numbered(19), batch_size=8, seed=1, rank=1, world=2)
    whole = list(batches.epoch(0))
    assert [len(labels) for _, labels in whole] == [4, 4, 3]
    assert same(whole[2:], list(batches.epoch(0, start=2)))


def test_shares_weigh_their_rows() -> None:
    """Five rows for two processes: three and two, weighted 6/5 and 4/5, so that the mean of both is that of all."""
    rows = torch.arange(5.0)
    parts = [Share(rank, 2) for rank in range(2)]
    assert [part.of(rows).tolist() for part in parts] == [[0, 2, 4], [1, 3]]
    assert [part.weight(5) for part in parts] == [6 / 5, 4 / 5]
    assert sum(part.weight(5) * float(part.of(rows).mean()) for part in parts) / 2 == float(rows.mean())
    assert Share().weight(5) == 1.0


def test_remainder_of_one_row_is_left_out() -> None:
    for world in (1, 2):
        assert Batches(data=numbered(33), batch_size=16, seed=0, world=world).steps == 2
        assert Batches(data=numbered(34), batch_size=16, seed=0, world=world).steps == 3
    assert Batches(data=numbered(3), batch_size=16, seed=0).steps == 1


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2, got 1"):
        Batches(data=numbered(4), batch_size=1, seed=0)
    with pytest.raises(InputError, match="is empty"):
        Batches(data=numbered(4).subset(torch.empty(0, dtype=torch.int64)), batch_size=4, seed=0)
    with pytest.raises(InputError, match=r"multiple of the 4 processes.*got 10\. Choose 12"):
        Batches(data=numbered(4), batch_size=10, seed=0, world=4)
