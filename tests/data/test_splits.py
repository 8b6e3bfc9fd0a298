from pathlib import Path

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_tensors
from indelible.data.splits import Split


@pytest.mark.parametrize(("size", "share", "taken"), [(10, 0.2, 2), (7500, 0.2, 1500), (5, 0.0, 0), (7, 0.5, 4)])
def test_split_is_disjoint_complete_and_of_the_right_size(size: int, share: float, taken: int) -> None:
    split = Split.draw(size, attacker=share, seed=3)
    assert len(split.attacker) == taken
    assert sorted(split.owner.tolist() + split.attacker.tolist()) == list(range(size))
    assert split.owner.tolist() == sorted(split.owner.tolist())


def test_split_is_a_function_of_the_seed() -> None:
    assert torch.equal(Split.draw(100, seed=1).owner, Split.draw(100, seed=1).owner)
    assert not torch.equal(Split.draw(100, seed=1).owner, Split.draw(100, seed=2).owner)


def test_saved_split_comes_back(tmp_path: Path) -> None:
    split = Split.draw(50, seed=9)
    split.save(tmp_path / "split.safetensors")
    again = Split.load(tmp_path / "split.safetensors")
    assert torch.equal(again.owner, split.owner)
    assert torch.equal(again.attacker, split.attacker)
    assert (again.size, again.seed) == (50, 9)


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_wrong_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match=r"must lie in \[0, 1\)"):
        Split.draw(10, attacker=share)


def test_owner_without_images_is_refused() -> None:
    with pytest.raises(InputError, match="leaves none to the owner"):
        Split.draw(1, attacker=0.9)
    with pytest.raises(InputError, match="leaves none to the owner"):
        Split.draw(0)


@pytest.mark.parametrize(("owner", "attacker"), [([0, 1], [1, 2]), ([0, 1], [9]), ([-1, 0], [1]), ([0, 0], [1])])
def test_damaged_splits_are_refused(tmp_path: Path, owner: list[int], attacker: list[int]) -> None:
    path = tmp_path / "split.safetensors"
    write_tensors(path, {"owner": torch.tensor(owner), "attacker": torch.tensor(attacker)}, {"size": 5, "seed": 0})
    with pytest.raises(DamagedFileError, match="overlap or lie outside"):
        Split.load(path)
    write_tensors(path, {"owner": torch.tensor(owner)}, {"size": 5, "seed": 0})
    with pytest.raises(DamagedFileError, match="not a split"):
        Split.load(path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DamagedFileError, match="not a whole safetensors file"):
        Split.load(path)
