"""Suspects: anything that answers images with labels; one file per kind, every answer checked."""

from indelible.data.digests import image_digests
from indelible.verify.suspects.http import HttpSuspect, Persistence
from indelible.verify.suspects.locate import open_suspect
from indelible.verify.suspects.log import QueryLog, read_log
from indelible.verify.suspects.logged import BudgetError, LoggedSuspect
from indelible.verify.suspects.module import ModuleSuspect
from indelible.verify.suspects.onnx import OnnxSuspect
from indelible.verify.suspects.outputs import BadAnswerError
from indelible.verify.suspects.predictions import PredictionFile
from indelible.verify.suspects.preprocessing import Preprocessing
from indelible.verify.suspects.protocol import Suspect, answers, as_suspect

__all__ = [
    "BadAnswerError",
    "BudgetError",
    "HttpSuspect",
    "LoggedSuspect",
    "ModuleSuspect",
    "OnnxSuspect",
    "Persistence",
    "PredictionFile",
    "Preprocessing",
    "QueryLog",
    "Suspect",
    "answers",
    "as_suspect",
    "image_digests",
    "open_suspect",
    "read_log",
]
