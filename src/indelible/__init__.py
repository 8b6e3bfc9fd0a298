"""Indelible: ownership watermarks for neural networks that survive attempts to remove them.

key = indelible.Key.create(kind="content", classes=10, shape=(3, 32, 32), target=0)
protected = indelible.embed(model, owner_data, key, method="app")
stolen = indelible.attack(protected.model, attacker_data, method="ft")
verdict = indelible.verify(stolen.model, key, carriers=test_data)
"""

from indelible.attacks import Attacked, attack
from indelible.base.errors import DamagedFileError, IndelibleError, InputError, StorageError, UnknownNameError
from indelible.data import ImageData, Split, as_data, load
from indelible.embed import APP, CW, EW, Embedded, embed
from indelible.keys import Key, WatermarkSamples
from indelible.models import build_model
from indelible.train import Schedule, TrainSettings
from indelible.train.run import Run
from indelible.verify import Certificate, Verdict, certify, open_suspect, verify, verify_logged

__version__ = "0.1.0"

__all__ = [
    "APP",
    "CW",
    "EW",
    "Attacked",
    "Certificate",
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
    "certify",
    "embed",
    "load",
    "open_suspect",
    "verify",
    "verify_logged",
]
