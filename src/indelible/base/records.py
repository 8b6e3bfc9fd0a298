"""Records: settings, data and results of a run - enough to run it again.

A record is a frozen, JSON-able value. Rates are fractions in [0, 1]; only tables for people show per cent.
"""

import math
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from indelible.base.errors import DamagedFileError

_FORMAT = 1
_PACKAGES = ("indelible", "torch", "numpy", "lightning-fabric", "safetensors")


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def hardware(device: torch.device | str = "cpu") -> Mapping[str, Any]:
    """Describe the device that did the work, without naming the machine."""
    place = torch.device(device)
    described: dict[str, Any] = {"device": place.type, "threads": torch.get_num_threads(), "cores": os.cpu_count()}
    if place.type == "cuda":
        described["accelerator"] = torch.cuda.get_device_name(place)
    else:
        described["processor"] = _processor()
    return described


@cache
def _processor() -> str:
    with suppress(OSError):
        if named := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE):
            return named[1].strip()
    return platform.processor() or platform.machine()


def plain(value: Any) -> Any:
    """Turn settings and results into what JSON can hold; not-a-number becomes null.

    Dataclasses, mappings, sequences, tensors of one element and paths are converted; anything else must be a
    JSON type already, so that nothing is stored as an unreadable ``repr`` by accident.
    """
    converted: Any
    if value is None or isinstance(value, bool | int | str):
        converted = value
    elif isinstance(value, float):
        converted = value if math.isfinite(value) else None
    elif isinstance(value, Mapping):
        converted = {str(key): plain(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        converted = [plain(item) for item in value]
    elif isinstance(value, torch.Tensor) and value.numel() == 1:
        converted = plain(value.item())
    elif hasattr(value, "to_json"):
        converted = value.to_json()
    elif hasattr(value, "__dataclass_fields__"):
        converted = JsonFields.to_json(value)
    else:
        raise TypeError(f"cannot store a {type(value).__name__} in a record")
    return converted


class JsonFields:
    """A dataclass that is written as JSON, field by field."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Record(JsonFields):
    """One run of one verb, ``"embed"``, ``"attack"`` or ``"train"``.

    ``inputs`` are digests and names of what went in (data, model, key), ``seconds`` the time of all sessions of a
    resumed run, ``images`` those passed forward in training, counting every pass.
    """

    verb: str
    method: str
    settings: Mapping[str, Any]
    seed: int
    inputs: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    images: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, Any] = field(default_factory=hardware)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return {"format": _FORMAT, **super().to_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild a record from :meth:`to_json`; any other value is a :class:`DamagedFileError`."""
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise DamagedFileError(f"expected a record of format {_FORMAT}. Update indelible, or restore the file.")
        held = {name: item for name, item in value.items() if name != "format"}
        missing = {"verb", "method", "settings", "seed"} - held.keys()
        unknown = held.keys() - cls.__dataclass_fields__.keys()
        if missing or unknown:
            raise DamagedFileError(f"the record lacks {sorted(missing)} and has unknown {sorted(unknown)}.")
        return cls(**held)
