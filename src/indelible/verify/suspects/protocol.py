"""What every suspect is: something that answers images with labels. Labels are the base case of every test."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.data.augment import Normalization
from indelible.nn.layers import check_finite
from indelible.verify.suspects.module import ModuleSuspect

__all__ = ["Suspect", "answers", "as_suspect"]


@runtime_checkable
class Suspect(Protocol):
    """A model that can be asked."""

    def predict(self, images: Tensor) -> Tensor:
        """Return a label (int64, (N,)) for each of ``images`` (uint8, (N, C, H, W))."""
        ...


def as_suspect(suspect: Any, *, normalize: Normalization | None = None) -> Suspect:
    """Return ``suspect`` as something that can be asked."""
    if isinstance(suspect, nn.Module):
        check_finite(suspect, "the suspect")
        return ModuleSuspect(suspect, normalize)
    if isinstance(suspect, Suspect):
        return suspect
    raise InputError(
        f"a suspect must be a torch module or have a predict(images) method, but is {type(suspect).__name__}. "
        "indelible.open_suspect makes one from a file or an address."
    )


def answers(suspect: Suspect, images: Tensor, classes: int) -> Tensor:
    """Ask, and check every answer: a bad answer is an error with the query's number, never a miss."""
    labels = suspect.predict(images)
    if not isinstance(labels, Tensor) or labels.shape != (len(images),) or labels.dtype != torch.int64:
        came = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"a suspect must answer int64 labels of shape ({len(images)},), but answered {came}.")
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        number = int(wrong[0])
        raise InputError(
            f"the suspect answered class {int(labels[number])} to query {number}, but the key knows 0..{classes - 1}. "
            "It is a model of another task."
        )
    return labels
