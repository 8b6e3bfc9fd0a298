"""A file of weights plus the architecture they belong to: ``.safetensors``, or ``.pt``/``.pth`` of ``torch.save``.

A ``.pt`` file is a pickle. It is read by torch's restricted reader (``weights_only=True``), which admits tensors,
numbers, strings and containers and calls nothing else; a file that wants more is refused. Safetensors needs no such
care: prefer it.
"""

import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors
from indelible.data.augment import Normalization
from indelible.nn.layers import check_finite
from indelible.verify.suspects.module import ModuleSuspect

__all__ = ["PICKLED", "read_weights", "weights_suspect"]

PICKLED = (".pt", ".pth")
# Where a training script puts the weights when it saves more than them.
_INSIDE = ("state_dict", "model_state_dict", "model", "weights")
_REFUSALS = (
    pickle.UnpicklingError, struct.error, zipfile.BadZipFile, RuntimeError, ValueError, TypeError, KeyError, IndexError,
    AttributeError, EOFError, OSError, AssertionError, MemoryError, RecursionError, ImportError, OverflowError,
    NotImplementedError, UnicodeError,
)  # fmt: skip


def weights_suspect(path: str | Path, model: nn.Module, *, normalize: Normalization | None = None) -> ModuleSuspect:
    """Load a file of weights into a freshly built network.

    Args:
        path: ``.safetensors``, ``.pt`` or ``.pth``.
        model: The architecture, for example from :func:`indelible.build_model`.
        normalize: (mean, std) that its input is normalised by.

    Raises:
        DamagedFileError: The file cannot be read, or its weights do not fit the network.
    """
    place = Path(path)
    weights = read_weights(place)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        cause = " ".join(str(error).split())[:200]
        raise DamagedFileError(
            f"{place} does not fit the network {type(model).__name__}: {cause}. Name the architecture "
            "it was saved from."
        ) from error
    check_finite(model, str(place))
    return ModuleSuspect(model.eval(), normalize, place.name)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a file; nothing that it holds is executed."""
    if not path.is_file():
        raise InputError(f"there is no file {path}. Check the path.")
    found: Any
    if path.suffix in PICKLED:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except _REFUSALS as error:
            cause = " ".join(str(error).split())[:160]
            raise DamagedFileError(
                f"{path} is not a file of weights that can be read without running code from it ({cause}). Have it "
                "saved as safetensors, or as torch.save(model.state_dict(), ...)."
            ) from error
    else:
        found, _ = read_tensors(path)
    for name in _INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
            break
    if not isinstance(found, Mapping) or not found or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):  # fmt: skip
        raise DamagedFileError(f"{path} holds no named weights. Save it with torch.save(model.state_dict(), ...).")
    return dict(found)
