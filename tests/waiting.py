"""Waiting in tests: until something has happened, however slow or busy the machine is.

A limit here only ends a test that would hang. What a time-out does is tested with clocks and servers that the test
controls.
"""

import time
from collections.abc import Callable

__all__ = ["PATIENCE", "until"]

PATIENCE = 1200.0
"""Seconds; less than the limit of a whole test in pyproject.toml, so that the test can say what it waited for."""


def until(happened: Callable[[], object], *, every: float = 0.02) -> bool:
    """Ask again and again until ``happened()`` is true; return False after :data:`PATIENCE`."""
    ends = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > ends:
            return False
        time.sleep(every)
    return True
