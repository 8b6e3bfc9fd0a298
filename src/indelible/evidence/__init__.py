"""Evidence a third party can check offline: commitment, signature, timestamp, partial opening, bundle, check."""

from indelible.evidence.check import Checked, Step, check_bundle
from indelible.evidence.claim import claim
from indelible.evidence.commitment import Commitment, commit
from indelible.evidence.signing import Identity
from indelible.evidence.timestamp import Stamp, attach_timestamp, request_timestamp

__all__ = [
    "Checked",
    "Commitment",
    "Identity",
    "Stamp",
    "Step",
    "attach_timestamp",
    "check_bundle",
    "claim",
    "commit",
    "request_timestamp",
]
