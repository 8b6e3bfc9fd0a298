"""Suspects: anything that answers images with labels; one file per kind, every answer checked."""

from indelible.data.digests import image_digests
from indelible.verification.suspects.http import HttpSuspect, Persistence
from indelible.verification.suspects.log import read_log
from indelible.verification.suspects.open_suspect import open_suspect
from indelible.verification.suspects.outputs import BadAnswerError
from indelible.verification.suspects.predictions import PredictionFile
from indelible.verification.suspects.preprocessing import Preprocessing
from indelible.verification.suspects.suspect import (
    SUSPECTS,
    AddressedSuspect,
    ModuleSuspect,
    Suspect,
    answers,
    as_suspect,
)

__all__ = [
    "SUSPECTS",
    "AddressedSuspect",
    "BadAnswerError",
    "HttpSuspect",
    "ModuleSuspect",
    "Persistence",
    "PredictionFile",
    "Preprocessing",
    "Suspect",
    "answers",
    "as_suspect",
    "image_digests",
    "open_suspect",
    "read_log",
]
