"""What every suspect is: something that answers images with labels. Labels are the base case of every test."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from indelible.base.checks import check_module
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
        check_module(suspect, "the suspect")
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
    if isinstance(suspect, ModuleSuspect) and suspect.classes is None:
        # A model of more classes could answer within those of the key by chance, and would count as "not shown".
        suspect = replace(suspect, classes=classes)
    labels = _labels(suspect.predict(images), len(images))
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        number = int(wrong[0])
        raise InputError(
            f"the suspect answered class {int(labels[number])} to query {number}, but the key knows 0..{classes - 1}. "
            "It is a model of another task."
        )
    return labels


def _labels(answer: Any, count: int) -> Tensor:
    """Return an answer as int64 on the CPU: whole numbers of any width, as a tensor, an array or a list."""
    labels = answer
    if not isinstance(labels, Tensor):
        try:
            array = np.asarray(labels)
        except ValueError as error:
            raise InputError(
                _other_answer(count, type(answer).__name__, "rows of lengths that differ", (len(answer),))
            ) from error
        if array.dtype.kind not in "iu":
            raise InputError(_other_answer(count, type(answer).__name__, str(array.dtype), array.shape))
        labels = torch.from_numpy(array.astype(np.int64))
    kind = str(labels.dtype).removeprefix("torch.")
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(_other_answer(count, type(answer).__name__, kind, tuple(labels.shape)))
    return labels.detach().to("cpu", torch.int64)


def _other_answer(count: int, name: str, kind: str, shape: tuple[int, ...]) -> str:
    return (
        f"a suspect must answer one label for each image, whole numbers of shape ({count},), but answered a {name} of "
        f"{kind} and shape {shape}. Return the class with the highest score, scores.argmax(1)."
    )
