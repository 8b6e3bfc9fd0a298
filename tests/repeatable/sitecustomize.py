"""Read by Python as it starts, in processes of ``tests.processes.ALONE``: new keys draw from a seeded generator."""

import random
import secrets

secrets.token_bytes = random.Random("process").randbytes  # type: ignore[assignment]
