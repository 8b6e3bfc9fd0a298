"""The bundle of the evidence tests serves the tests of foreign files, too."""

from tests.evidence.conftest import case

__all__ = ["case"]
