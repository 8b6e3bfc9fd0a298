"""Indelible: ownership watermarks for neural networks that survive attempts to remove them.

key = indelible.Key.create(classes=10, shape=(3, 32, 32))
protected = indelible.embed(model, owner_data, key, method="app")
stolen = indelible.attack(protected.model, attacker_data, method="ft")
verdict = indelible.verify(stolen.model, key, carriers=test_data)

Public names are imported when they are first used: torch takes seconds to import, and ``indelible --help`` needs none
of it.
"""

from typing import TYPE_CHECKING

from indelible.base.errors import DamagedFileError, IndelibleError, InputError, StorageError, UnknownNameError

if TYPE_CHECKING:
    from indelible.attacks import Attacked, attack
    from indelible.data import ImageData, Split, as_data, load
    from indelible.embedding import APP, CW, EW, Embedded, embed
    from indelible.keys import Key, WatermarkSamples
    from indelible.models import build_model
    from indelible.train import Schedule, TrainSettings
    from indelible.train.run_folder import Run
    from indelible.verification import Verdict, open_suspect, verify, verify_logged

__version__ = "0.1.0"

__all__ = [
    "APP",
    "CW",
    "EW",
    "Attacked",
    "DamagedFileError",
    "Embedded",
    "ImageData",
    "IndelibleError",
    "InputError",
    "Key",
    "Run",
    "Schedule",
    "Split",
    "StorageError",
    "TrainSettings",
    "UnknownNameError",
    "Verdict",
    "WatermarkSamples",
    "as_data",
    "attack",
    "build_model",
    "embed",
    "load",
    "open_suspect",
    "verify",
    "verify_logged",
]

# The same as under TYPE_CHECKING, for the running program; a test compares the two.
_ROOMS = {
    "indelible.attacks": ("Attacked", "attack"),
    "indelible.data": ("ImageData", "Split", "as_data", "load"),
    "indelible.embedding": ("APP", "CW", "EW", "Embedded", "embed"),
    "indelible.keys": ("Key", "WatermarkSamples"),
    "indelible.models": ("build_model",),
    "indelible.train": ("Schedule", "TrainSettings"),
    "indelible.train.run_folder": ("Run",),
    "indelible.verification": ("Verdict", "open_suspect", "verify", "verify_logged"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept every misspelt name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_HOME[name]), name)
        globals()[name] = found
        return found
