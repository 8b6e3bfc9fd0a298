"""Suspects, statistics, verdict: is this model derived from the owner's?"""

from indelible.verification.careful_queries import planned, verify_logged
from indelible.verification.planner import SessionPlan, codebook_plan, plan, session_plan
from indelible.verification.suspects import Suspect, as_suspect, open_suspect
from indelible.verification.verdict import Verdict, corrected, verify

__all__ = [
    "SessionPlan",
    "Suspect",
    "Verdict",
    "as_suspect",
    "codebook_plan",
    "corrected",
    "open_suspect",
    "plan",
    "planned",
    "session_plan",
    "verify",
    "verify_logged",
]
