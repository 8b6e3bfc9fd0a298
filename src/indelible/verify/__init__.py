"""Suspects, statistics, verdict: is this model derived from the owner's?"""

from indelible.verify.asking import planned, verify_logged
from indelible.verify.certificate import Certificate, certify
from indelible.verify.suspects import ModuleSuspect, Suspect, as_suspect, open_suspect
from indelible.verify.verdict import Verdict, verify

__all__ = [
    "Certificate",
    "ModuleSuspect",
    "Suspect",
    "Verdict",
    "as_suspect",
    "certify",
    "open_suspect",
    "planned",
    "verify",
    "verify_logged",
]
