"""The bundles of the evidence tests serve the tests of foreign files, too."""

from tests.evidence.conftest import case, keyed_case

__all__ = ["case", "keyed_case"]
