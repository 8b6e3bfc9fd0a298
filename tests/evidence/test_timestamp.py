"""Timestamps of a private authority (``openssl ts``): right, wrong, expired, of another document, replayed, damaged."""

import random
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError
from indelible.evidence import attach_timestamp, check_bundle, request_timestamp
from indelible.evidence.timestamp import read_roots, verify_timestamp
from tests.evidence.authority import OPENSSL, Authority
from tests.evidence.cases import Case

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="needs openssl")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_request_attach_verify(authority: Authority, tmp_path: Path) -> None:
    reply = authority.answer(request_timestamp(b"statement", tmp_path))
    stamp = attach_timestamp(b"statement", reply, authority.roots, tmp_path)
    assert stamp.authority == "CN=Test Authority"
    assert stamp.time.endswith("Z")
    again = verify_timestamp(b"statement", (tmp_path / "timestamp.tsr").read_bytes(), read_roots(authority.roots, "r"))
    assert again == stamp


def test_another_document_another_request(authority: Authority, tmp_path: Path) -> None:
    reply = authority.answer(request_timestamp(b"statement", tmp_path))
    with pytest.raises(DamagedFileError, match="does not hold"):
        attach_timestamp(b"another", reply, authority.roots, tmp_path)
    request_timestamp(b"statement", tmp_path)  # a new nonce: the old answer is a replay
    with pytest.raises(DamagedFileError, match="Nonce"):
        attach_timestamp(b"statement", reply, authority.roots, tmp_path)
    assert not (tmp_path / "timestamp.tsr").exists(), "only an answer that holds is kept"


def test_wrong_authority(authority: Authority, case: Case, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    wrong = check_bundle(case.bundle, roots=other.roots)
    assert wrong.failed == "timestamp"
    assert "'CN=Test Authority', which the roots that you gave do not certify" in wrong.steps[-1].says
    checked = check_bundle(case.bundle, roots=case.roots)
    assert checked.holds
    assert checked.dated
    own = check_bundle(case.bundle)
    assert own.holds
    assert not own.dated, "a root that comes with the bundle dates nothing"
    assert any("checked with the root of the bundle" in caveat for caveat in own.caveats)


def test_an_expired_certificate(tmp_path: Path) -> None:
    """The signer's certificate ended before the time that the token states."""
    expired = Authority(tmp_path / "expired", days=-10)
    reply = expired.answer(request_timestamp(b"statement", tmp_path))
    with pytest.raises(DamagedFileError, match="does not hold"):
        attach_timestamp(b"statement", reply, expired.roots, tmp_path)


def test_a_timestamp_that_is_taken_away(case: Case, tmp_path: Path) -> None:
    bundle = case.copy(tmp_path / "b")
    for name in ("timestamp.tsr", "authority.pem"):
        (bundle / name).unlink()
    case.sign(bundle)
    undated = check_bundle(bundle)
    assert undated.holds
    assert not undated.dated
    assert any("no timestamp" in caveat for caveat in undated.caveats)
    assert check_bundle(bundle, roots=case.roots).failed == "timestamp", "whoever gives roots expects a date"


def test_damaged_tokens_are_errors_of_our_own(authority: Authority, tmp_path: Path) -> None:
    reply = authority.answer(request_timestamp(b"statement", tmp_path))
    roots, chance, held = read_roots(authority.roots, "r"), random.Random(0), 0
    whole = verify_timestamp(b"statement", reply, roots)
    for turn in range(300):
        changed = bytearray(reply)
        if turn % 3 == 0:
            changed = changed[: chance.randrange(len(changed))]
        else:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        try:
            stamp = verify_timestamp(b"statement", bytes(changed), roots)
        except DamagedFileError:
            continue
        # Some bits of a token are not signed by the authority: the bundle's manifest covers those.
        assert stamp == whole
        held += 1
    assert held < 30
    for content in (b"", b"\x30\x03\x02\x01\x02", b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(DamagedFileError, match=r"the timestamp does not hold \(ASN\.1"):
            verify_timestamp(b"statement", content, roots)
    for pem in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"):
        with pytest.raises(DamagedFileError, match="roots are not certificates in PEM"):
            read_roots(pem, "roots")
