"""A fingerprint: stored queries with the labels that the owner's model gives them, and how often others do.

Nothing here is derived from a secret. Queries are found by optimisation, and whoever finds them could have found ones
that suit other people's models as well: a match has no weight against forgery, and the verdict says so.

*References* are models that were trained independently of the owner's and took no part in finding the queries. How
often they answer with the labels is the measured null of the verdict.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors, tensor_digest, write_tensors
from indelible.keys.samples import WatermarkSamples

__all__ = ["Fingerprint"]

_KIND = "fingerprint"


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Queries, their labels, and the hits of independent models.

    Attributes:
        samples: The queries; ``true`` are the classes of the images that they were made from.
        references: int64 (m,): of each reference model, how many queries it answers with their labels.
    """

    samples: WatermarkSamples
    references: Tensor

    def __post_init__(self) -> None:
        hits, count = self.references, len(self.samples)
        if hits.ndim != 1 or hits.dtype != torch.int64 or len(hits) == 0:
            raise InputError("a fingerprint needs the hits of at least one reference model, as whole numbers.")
        if int(hits.min()) < 0 or int(hits.max()) > count:
            raise InputError(f"a reference model hits 0..{count} of {count} queries, but {hits.tolist()} came.")

    @property
    def nulls(self) -> list[tuple[int, int]]:
        """(hits, trials) of each reference model."""
        return [(hits, len(self.samples)) for hits in self.references.tolist()]

    def digest(self) -> str:
        """Return a SHA-256 that changes with any pixel, label or count."""
        return tensor_digest(self._tensors())

    def _tensors(self) -> dict[str, Tensor]:
        held = self.samples
        true = {} if held.true is None else {"true": held.true}
        return {
            "images": held.images, "labels": held.labels, "carriers": held.carriers, **true,
            "references": self.references,
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the fingerprint as safetensors, mode 0600: whoever sees the queries can recognise them."""
        write_tensors(path, self._tensors(), {"kind": _KIND}, mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a fingerprint written by :meth:`save`.

        Raises:
            DamagedFileError: The file does not hold one.
        """
        tensors, about = read_tensors(path)
        if about.get("kind") != _KIND or not {"images", "labels", "carriers", "references"} <= tensors.keys():
            raise DamagedFileError(f"{path} does not hold a fingerprint. Restore it from a copy.")
        samples = WatermarkSamples(tensors["images"], tensors["labels"], tensors["carriers"], tensors.get("true"))
        return cls(samples, tensors["references"])
