"""Base of suspects: anything that answers images with labels. Labels are the base case of every test."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from torch import Tensor, nn

from indelible.base.checks import check_module
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.base.registry import MethodRegistry
from indelible.data.augment import Normalization
from indelible.nn.layers import check_finite
from indelible.train.evaluate import predict
from indelible.verification.suspects.answer_labels import known_labels

SUSPECTS = MethodRegistry(
    "scheme of a suspect", group="indelible.suspects",
    base="indelible.verification.suspects.suspect:AddressedSuspect", needs="open(cls, place, *, classes, **options)",
)  # fmt: skip


@runtime_checkable
class Suspect(Protocol):
    """A model that can be asked."""

    def predict(self, images: Tensor) -> Tensor:
        """Return a label (int64, (N,)) for each of ``images`` (uint8, (N, C, H, W))."""
        ...


class AddressedSuspect(Suspect):
    """Base of suspects that other packages add: ``open_suspect("NAME://...")`` opens the class of that name.

    It is registered by ``@SUSPECTS.register(name="NAME")``, or by an entry point of the group ``indelible.suspects``.
    """

    @classmethod
    def open(cls, place: str, *, classes: int, **options: Any) -> Self:
        """Return the suspect at an address; ``options`` are those of :func:`indelible.open_suspect` that were given."""
        raise NotImplementedError


@dataclass(frozen=True)
class ModuleSuspect:
    """A torch module; ``file`` names where its weights are from, ``classes`` are the outputs that it must have."""

    model: nn.Module
    normalize: Normalization | None = None
    file: str | None = None
    classes: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return what was asked, for logs and evidence: the digest names the weights."""
        origin = {} if self.file is None else {"file": self.file}
        digest = tensor_digest(self.model.state_dict())
        return {"kind": "weights", **origin, "network": type(self.model).__name__, "digest": digest}

    def predict(self, images: Tensor) -> Tensor:
        """Return the most likely class of each image."""
        return predict(self.model, images, normalize=self.normalize, classes=self.classes)


def as_suspect(suspect: Any, *, normalize: Normalization | None = None) -> Suspect:
    """Return ``suspect`` as something that can be asked."""
    if isinstance(suspect, nn.Module):
        check_module(suspect, "the suspect")
        check_finite(suspect, "the suspect")
        return ModuleSuspect(suspect, normalize)
    if isinstance(suspect, Suspect):
        return suspect
    raise InputError(
        f"a suspect must be a torch module or have a predict(images) method, got {type(suspect).__name__}. "
        "indelible.open_suspect makes one from a file or an address."
    )


def answers(suspect: Suspect, images: Tensor, classes: int, first: int = 0) -> Tensor:
    """Ask, and check every answer: a bad answer is an error with the query's number, never a miss.

    The number of the first query is ``first``.
    """
    if isinstance(suspect, ModuleSuspect) and suspect.classes is None:
        # A model of more classes could answer within those of the key by chance, and would count as "not shown".
        suspect = replace(suspect, classes=classes)
    answer: Any = suspect.predict(images)
    try:
        array = answer.detach().cpu().numpy() if isinstance(answer, Tensor) else np.asarray(answer)
        kind, shape = str(array.dtype), array.shape
    except (ValueError, TypeError):
        array, shape = np.empty(0), (len(answer),)
        kind = str(getattr(answer, "dtype", "rows of lengths that differ"))
    if array.dtype.kind not in "iu" or shape != (len(images),):
        raise InputError(
            f"a suspect must answer one label for each image, whole numbers of shape ({len(images)},), but answered a "
            f"{type(answer).__name__} of {kind} and shape {shape}. Return the class with the highest score, "
            "scores.argmax(1)."
        )
    return known_labels(array, classes, first)
