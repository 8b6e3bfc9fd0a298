"""Logits, whatever a classifier returns: a tensor, a tuple that starts with them, or an object with ``.logits``."""

from typing import Any

from torch import Tensor

from indelible.base.errors import InputError


def logits_of(output: Any) -> Tensor:
    """Return the logits (N, K) in a model's output."""
    found = getattr(output, "logits", output)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    elif isinstance(found, dict) and "logits" in found:
        found = found["logits"]
    if not isinstance(found, Tensor) or found.ndim != 2:
        came = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(output).__name__
        raise InputError(
            f"a classifier must return logits of shape (N, classes) - as a tensor, first in a tuple, or as `.logits` - "
            f"got {came}. Wrap the model so that it does."
        )
    return found
