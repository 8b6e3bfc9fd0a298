"""Split the training images between owner and attacker; the test set judges both.

The paper gives 80 % of the training set to the owner and 20 % to the attacker. The split is seeded, disjoint and saved
with the run, so that an attack made weeks later uses exactly the images that the owner never saw.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors, write_tensors
from indelible.base.seeding import generator


@dataclass(frozen=True, eq=False)
class Split:
    """Indices into one training set of ``size`` images: int64, sorted; no index occurs in both."""

    owner: Tensor
    attacker: Tensor
    size: int
    seed: int

    @classmethod
    def draw(cls, size: int, *, attacker: float = 0.2, seed: int = 0) -> Self:
        """Draw a split of ``size`` images that gives the share ``attacker`` to the attacker."""
        if not 0.0 <= attacker < 1.0:
            raise InputError(f"the attacker's share must lie in [0, 1), got {attacker}. The paper uses 0.2.")
        order = torch.randperm(size, generator=generator(seed, "split"))
        taken = round(size * attacker)
        if size - taken == 0:
            raise InputError(f"a training set of {size} images leaves none to the owner. Use a larger set.")
        return cls(order[taken:].sort().values, order[:taken].sort().values, size, seed)

    def save(self, path: str | Path) -> None:
        """Write the split as safetensors."""
        write_tensors(path, {"owner": self.owner, "attacker": self.attacker}, {"size": self.size, "seed": self.seed})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a split and check that it is one (disjoint, inside the set)."""
        tensors, metadata = read_tensors(path)
        try:
            split = cls(tensors["owner"], tensors["attacker"], int(metadata["size"]), int(metadata["seed"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{path} is not a split of a data set ({error!r}).") from error
        both = torch.cat([split.owner, split.attacker])
        if both.numel() and (
            both.unique().numel() != both.numel() or int(both.max()) >= split.size or int(both.min()) < 0
        ):
            raise DamagedFileError(f"{path}: the owner's and the attacker's images overlap or lie outside the set.")
        return split
