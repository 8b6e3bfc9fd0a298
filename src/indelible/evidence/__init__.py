"""Evidence a third party can check offline: commitment, signature, timestamp, partial opening, bundle, check."""

from indelible.evidence.check import Checked as Checked
from indelible.evidence.check import CheckStep as CheckStep
from indelible.evidence.check import check_bundle as check_bundle
from indelible.evidence.commitment import Commitment as Commitment
from indelible.evidence.commitment import commit as commit
from indelible.evidence.make_claim import claim as claim
from indelible.evidence.signing import Identity as Identity
from indelible.evidence.timestamp import Stamp as Stamp
from indelible.evidence.timestamp import attach_timestamp as attach_timestamp
from indelible.evidence.timestamp import request_timestamp as request_timestamp
