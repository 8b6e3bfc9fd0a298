"""Suspects, statistics, verdict: is this model derived from the owner's?"""

from indelible.verification.careful_queries import planned as planned
from indelible.verification.careful_queries import verify_logged as verify_logged
from indelible.verification.planner import CodebookPlan as CodebookPlan
from indelible.verification.planner import codebook_plan as codebook_plan
from indelible.verification.planner import plan as plan
from indelible.verification.planner import session_plan as session_plan
from indelible.verification.suspects import Suspect as Suspect
from indelible.verification.suspects import as_suspect as as_suspect
from indelible.verification.suspects import open_suspect as open_suspect
from indelible.verification.verdict import Verdict as Verdict
from indelible.verification.verdict import corrected as corrected
from indelible.verification.verdict import verify as verify
