"""Suspects, statistics, verdict: is this model derived from the owner's?"""

from indelible.verify.certificate import Certificate, certify
from indelible.verify.suspects import ModuleSuspect, Suspect, as_suspect
from indelible.verify.verdict import Verdict, verify

__all__ = ["Certificate", "ModuleSuspect", "Suspect", "Verdict", "as_suspect", "certify", "verify"]
