"""Files of weights: ``.safetensors``, or ``.pt``/``.pth`` of ``torch.save``.

A ``.pt`` file is a pickle. It is read by torch's restricted reader (``weights_only=True``), which admits tensors,
numbers, strings and containers and calls nothing else; a file that wants more is refused. Safetensors needs no such
care: prefer it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors

PICKLED = (".pt", ".pth")
# Where a training script puts the weights when it saves more than them.
_INSIDE = ("state_dict", "model_state_dict", "model", "weights")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read named tensors from a file; nothing that it holds is executed."""
    place = Path(path)
    if not place.is_file():
        raise InputError(f"{place} does not exist. Check the path.")
    found: Any
    if place.suffix.lower() in PICKLED:
        try:
            found = torch.load(place, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch fail in many ways
            cause = " ".join(str(error).split())[:160]
            raise DamagedFileError(
                f"{place} is not a file of weights that can be read without running code from it ({cause}). Have it "
                "saved as safetensors, or as torch.save(model.state_dict(), ...)."
            ) from error
    else:
        try:
            found, _ = read_tensors(place)
        except DamagedFileError as error:
            raise DamagedFileError(
                f"{place} is not a whole safetensors file ({error.__cause__}). Restore it from a copy, or give a file "
                ".pt or .pth of torch.save(model.state_dict(), ...)."
            ) from error
    for name in _INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
            break
    if not isinstance(found, Mapping) or not found or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):  # fmt: skip
        raise DamagedFileError(f"{place} holds no named weights. Save it with torch.save(model.state_dict(), ...).")
    return dict(found)
