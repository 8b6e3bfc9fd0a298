"""Watermark samples: marked images and the labels that the owner's model gives them, in memory and on disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors, tensor_digest, write_tensors

_KIND, _FINGERPRINT = "watermark samples", "fingerprint"


@dataclass(frozen=True, eq=False)
class WatermarkSamples:
    """Marked images and the labels the owner's model gives them.

    Attributes:
        images: uint8 (n, C, H, W).
        labels: int64 (n,).
        carriers: int64 (n,), the rows of the carrier set that were marked or whose place the samples take.
        true: int64 (n,), true classes of the marked carriers; None for images that belong to no class.
        untargeted: A sample is a hit when it is answered with any class but its label, which is its true class.
        marks: int64 (n,), which mark of a codebook each sample carries; None for keys with one mark.
    """

    images: Tensor
    labels: Tensor
    carriers: Tensor
    true: Tensor | None = None
    untargeted: bool = False
    marks: Tensor | None = None

    def __post_init__(self) -> None:
        count = len(self.images)
        for name in ("labels", "carriers", "true", "marks"):
            rows: Tensor | None = getattr(self, name)
            if rows is not None and rows.shape != (count,):
                raise InputError(f"{count} samples need {count} {name}, got {tuple(rows.shape)}.")

    def __len__(self) -> int:
        return len(self.images)

    def hits(self, answers: Tensor) -> Tensor:
        """Tell which samples an answer (int64, (n,)) shows the watermark by: bool (n,)."""
        labels = self.labels.to(answers.device)
        return answers != labels if self.untargeted else answers == labels

    def subset(self, rows: Tensor) -> "WatermarkSamples":
        """Return the samples at ``rows`` (int64, (m,)), in that order."""
        true, marks = (None if held is None else held[rows] for held in (self.true, self.marks))
        return WatermarkSamples(self.images[rows], self.labels[rows], self.carriers[rows], true, self.untargeted, marks)

    @property
    def counted(self) -> Tensor:
        """Which samples count for the WSR (bool, (n,)): of a codebook, not those whose true class is the mark's."""
        if self.marks is None or self.true is None:
            return torch.ones(len(self), dtype=torch.bool)
        return self.true != self.labels

    def score(self, answers: Tensor) -> tuple[int, int]:
        """Return (hits, trials) among the samples that count, for ``answers`` (int64, (n,))."""
        counted = self.counted.to(answers.device)
        return int((self.hits(answers) & counted).sum()), int(counted.sum())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that there are, by name."""
        named = {name: getattr(self, name) for name in ("images", "labels", "carriers", "true", "marks")}
        return {name: held for name, held in named.items() if held is not None}

    def save(self, path: str | Path) -> None:
        """Write the samples as safetensors, mode 0600: whoever sees them knows the mark."""
        # Written only where true: the files of targeted samples keep their bytes.
        about = {"kind": _KIND, **({"untargeted": "yes"} if self.untargeted else {})}
        write_tensors(path, self.tensors(), about, mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read samples written by :meth:`save`."""
        tensors, about = read_tensors(path)
        if about.get("kind") != _KIND or not {"images", "labels", "carriers"} <= tensors.keys():
            raise DamagedFileError(f"{path} does not hold watermark samples. Give the file that the owner saved.")
        whole = all(
            tensors[name].dtype == torch.int64 for name in tensors.keys() & {"labels", "carriers", "true", "marks"}
        )
        if not whole or tensors["images"].dtype != torch.uint8 or tensors["images"].ndim != 4:
            raise DamagedFileError(f"{path} holds samples of other types than uint8 images with int64 labels.")
        try:
            return cls(**tensors, untargeted=about.get("untargeted") == "yes")
        except (InputError, TypeError) as error:
            raise DamagedFileError(f"{path}: {error} Restore it from a copy.") from error


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Stored queries, the labels that the owner's model gives them, and the hits of independent models.

    Nothing here is derived from a secret: a match has no weight against forgery, and the verdict says so. *References*
    are models that were trained independently of the owner's and took no part in finding the queries. How often they
    answer with the labels is the measured null of the verdict.

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
            raise InputError(f"a reference model hits 0..{count} of {count} queries, got {hits.tolist()}.")

    @property
    def nulls(self) -> list[tuple[int, int]]:
        """(hits, trials) of each reference model."""
        return [(hits, len(self.samples)) for hits in self.references.tolist()]

    def digest(self) -> str:
        """Return a SHA-256 that changes with any pixel, label or count."""
        return tensor_digest(self._tensors())

    def _tensors(self) -> dict[str, Tensor]:
        return {**self.samples.tensors(), "references": self.references}

    def save(self, path: str | Path) -> None:
        """Write the fingerprint as safetensors, mode 0600: whoever sees the queries can recognise them."""
        write_tensors(path, self._tensors(), {"kind": _FINGERPRINT}, mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a fingerprint written by :meth:`save`."""
        tensors, about = read_tensors(path)
        if about.get("kind") != _FINGERPRINT or not {"images", "labels", "carriers", "references"} <= tensors.keys():
            raise DamagedFileError(f"{path} does not hold a fingerprint. Restore it from a copy.")
        samples = WatermarkSamples(tensors["images"], tensors["labels"], tensors["carriers"], tensors.get("true"))
        return cls(samples, tensors["references"])
