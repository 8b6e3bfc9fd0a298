"""Turn the answers of a foreign model into labels, or into an error that names the query.

A foreign answer is an array of labels (N,) or (N, 1), or of scores (N, classes): logits or probabilities, whose largest
counts. Labels may come as floats (1.0 for class 1), as some servers write them. Everything else, and every number that
is not finite or no class of the key, is an error: an answer that cannot be read is never counted as a miss, because
misses speak for the suspect. JSON has no NaN, so that many servers write null for it: null is read as NaN.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import InputError


class BadAnswerError(InputError):
    """A suspect's answer that cannot be counted; the message names the query."""


def in_batches(ask: Callable[[Tensor, int], Tensor], images: Tensor, size: int) -> Tensor:
    """Return the labels of all images, asking ``size`` at a time; ``ask`` is told the number of the first."""
    found = [ask(images[start : start + size], start) for start in range(0, len(images), size)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def as_array(value: Any, *, first: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
    """Turn nested lists of a reply, which answers queries from ``first`` on, into an array of numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":
            array = np.asarray(_without_null(value))
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        raise BadAnswerError(
            f"the answer from query {first} on is not an array of numbers: its rows differ in length ({error})."
        ) from error
    if array.dtype.kind not in "iuf":
        raise BadAnswerError(
            f"the answer from query {first} on must hold numbers, got {_kind(value)}. Name the field with labels "
            "or scores, or map class names to numbers."
        )
    return array


def _without_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_null(one) for one in value]
    return float("nan") if value is None else value


def _kind(value: Any) -> str:
    """Name the first thing that is not a number."""
    if isinstance(value, list):
        return next((kind for kind in map(_kind, value) if kind != "numbers"), "numbers" if value else "nothing")
    if isinstance(value, bool):
        return "true or false"
    names = {int: "numbers", float: "numbers", type(None): "numbers", str: "text", dict: "objects"}
    return names.get(type(value), type(value).__name__)


def labels_of(output: np.ndarray[Any, np.dtype[Any]], *, count: int, classes: int, first: int = 0) -> Tensor:
    """Return the labels (int64, (N,)) in an output, after checking every one; errors count queries from ``first`` on.

    The output holds labels (N,) or (N, 1), whole numbers of any type, or scores (N, classes).
    """
    if output.ndim == 0 or len(output) != count:
        raise BadAnswerError(
            f"{count} images were asked from query {first} on, but the answer has the shape {output.shape}: "
            "one row for each image was expected."
        )
    single = output.ndim == 1 or (output.ndim == 2 and output.shape[1] == 1)
    if not single and (output.ndim != 2 or output.shape[1] != classes):
        raise BadAnswerError(
            f"the answer to query {first} has the shape {output.shape[1:]}, but the key knows {classes} classes. "
            "The suspect is a model of another task, or another output of it was named."
        )
    rows = output.reshape(count, -1)
    for number in (~np.isfinite(rows)).any(1).nonzero()[0][:1].tolist():
        short = ", ".join(f"{value:.3g}" for value in rows[number][:4])
        raise BadAnswerError(
            f"the answer to query {first + number} holds NaN or infinity ({short}{', ...' * (rows.shape[1] > 4)}; JSON "
            "writes NaN as null). The model is damaged, or its input is not what it was trained on: check the "
            "pre-processing."
        )
    if not single:
        return torch.from_numpy(rows.argmax(1).astype(np.int64))
    for number in (rows != np.round(rows)).nonzero()[0][:1].tolist():
        raise BadAnswerError(
            f"the answer to query {first + number} is the single number {rows[number, 0]:g}: neither a label (a whole "
            f"number, 0..{classes - 1}) nor one score for each of {classes} classes."
        )
    return known_labels(rows[:, 0], classes, first)


def known_labels(labels: np.ndarray[Any, np.dtype[Any]], classes: int, first: int) -> Tensor:
    """Return whole numbers as labels (int64, (N,)); refuse one that is no class of the key."""
    for number in ((labels < 0) | (labels >= classes)).nonzero()[0][:1].tolist():
        raise BadAnswerError(
            f"the suspect answered class {labels[number]:g} to query {first + number}, but the key knows "
            f"0..{classes - 1}. It is a model of another task, or its classes are numbered otherwise."
        )
    return torch.from_numpy(labels.astype(np.int64))
