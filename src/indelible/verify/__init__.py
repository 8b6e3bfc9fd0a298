"""Suspects, statistics, verdict: is this model derived from the owner's?"""

from indelible.verify.asking import planned, verify_logged
from indelible.verify.certificate import Certificate, certify
from indelible.verify.planner import CodebookPlan, Plan, codebook_plan, plan
from indelible.verify.session import SessionPlan, session_plan
from indelible.verify.suspects import ModuleSuspect, Suspect, as_suspect, open_suspect
from indelible.verify.verdict import Verdict, corrected, verify

__all__ = [
    "Certificate",
    "CodebookPlan",
    "ModuleSuspect",
    "Plan",
    "SessionPlan",
    "Suspect",
    "Verdict",
    "as_suspect",
    "certify",
    "codebook_plan",
    "corrected",
    "open_suspect",
    "plan",
    "planned",
    "session_plan",
    "verify",
    "verify_logged",
]
