"""Suspects: anything that answers images with labels; one file per kind, every answer checked."""

from indelible.verification.suspects.answer_labels import BadAnswerError as BadAnswerError
from indelible.verification.suspects.http import HttpSuspect as HttpSuspect
from indelible.verification.suspects.http import Persistence as Persistence
from indelible.verification.suspects.log import read_log as read_log
from indelible.verification.suspects.predictions import PredictionFile as PredictionFile
from indelible.verification.suspects.preprocessing import Preprocessing as Preprocessing
from indelible.verification.suspects.suspect import SUSPECTS as SUSPECTS
from indelible.verification.suspects.suspect import AddressedSuspect as AddressedSuspect
from indelible.verification.suspects.suspect import ModuleSuspect as ModuleSuspect
from indelible.verification.suspects.suspect import Suspect as Suspect
from indelible.verification.suspects.suspect import answers as answers
from indelible.verification.suspects.suspect import as_suspect as as_suspect
from indelible.verification.suspects.suspect_places import open_suspect as open_suspect
