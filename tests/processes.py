"""The environment of commands that a test starts and whose verdict it asserts."""

import os
from pathlib import Path

__all__ = ["ALONE"]

_REPEATABLE = Path(__file__).with_name("repeatable")
_PATH = [str(_REPEATABLE), *filter(None, [os.environ.get("PYTHONPATH")])]

ALONE = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_PATH)}
"""One thread, since the tests share the cores; and the same secrets in every run, where a key would draw its own."""
