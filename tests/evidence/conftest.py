"""One bundle for all tests of a session: tests that change it copy it first."""

import pytest

from tests.conftest import DRAWS
from tests.evidence.authority import OPENSSL
from tests.evidence.cases import Case


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    DRAWS.seed("case")  # which samples a challenge opens depends on who signs
    return Case(tmp_path_factory.mktemp("evidence"), stamped=OPENSSL is not None)


@pytest.fixture(scope="session")
def keyed_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    DRAWS.seed("keyed case")
    return Case(tmp_path_factory.mktemp("keyed-evidence"), stamped=OPENSSL is not None, labels="keyed")
