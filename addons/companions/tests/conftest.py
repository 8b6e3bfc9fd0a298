"""The fixtures of the repository's tests."""

from tests.conftest import _quiet, _repeatable_secrets, _seeded_module, data, key, net, test_data

__all__ = ["_quiet", "_repeatable_secrets", "_seeded_module", "data", "key", "net", "test_data"]
