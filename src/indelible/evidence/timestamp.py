"""RFC 3161 timestamps: an authority signs that a document existed at a time (extra ``evidence``: rfc3161-client).

The authority sees a hash, not the document. Its token is checked offline against root certificates that the *checker*
trusts. Certificates that come with a token only help to build the chain; those that come with a bundle prove nothing
by themselves, since anybody can be his own authority.
"""

from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json, write_bytes, write_json
from indelible.base.imports import needed

Certificates = list[x509.Certificate]
REQUEST, REPLY, ROOTS = "timestamp.tsq", "timestamp.tsr", "authority.pem"
_NONCE = "timestamp.json"
_LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """When a document existed at the latest, in UTC (``2026-01-31T12:00:00Z``), by which authority, and its number."""

    time: str
    authority: str
    serial: str


def request_timestamp(content: bytes, folder: str | Path) -> bytes:
    """Return a request for a timestamp over ``content`` and keep it in ``folder``, to compare the answer with."""
    client = _client()
    built = client.TimestampRequestBuilder().data(content).hash_algorithm(client.HashAlgorithm.SHA256).build()
    request: bytes = built.as_bytes()
    write_bytes(Path(folder) / REQUEST, request)
    write_json(Path(folder) / _NONCE, {"nonce": str(built.nonce)})
    return request


def send_request(request: bytes, url: str) -> bytes:
    """Post a request to an authority and return its answer."""
    http = needed("httpx2", extra="http", what="asking a timestamp authority")
    headers = {"Content-Type": "application/timestamp-query", "User-Agent": "indelible"}
    try:
        reply = http.post(url, content=request, headers=headers, timeout=30.0, follow_redirects=False)
    except (http.HTTPError, http.InvalidURL) as error:
        raise InputError(
            f"no answer from the authority {url} ({error}). Send {REQUEST} by hand, and attach the answer."
        ) from error
    if reply.status_code != 200 or len(reply.content) > _LARGEST:
        raise InputError(f"the authority {url} answered status {reply.status_code}, not a timestamp.")
    answer: bytes = reply.content
    return answer


def attach_timestamp(content: bytes, reply: bytes, roots: bytes, folder: str | Path) -> Stamp:
    """Check an authority's answer (DER) to the request in ``folder``, and keep it there, with the roots (PEM)."""
    place = Path(folder)
    nonce = int(read_json(place / _NONCE)["nonce"]) if (place / _NONCE).is_file() else None
    stamp = verify_timestamp(content, reply, read_roots(roots, "the roots"), nonce=nonce)
    write_bytes(place / ROOTS, roots)
    write_bytes(place / REPLY, reply)
    return stamp


def verify_timestamp(content: bytes, reply: bytes, roots: Certificates, *, nonce: int | None = None) -> Stamp:
    """Check a timestamp offline: its chain must end in one of ``roots`` at the time of the stamp."""
    client = _client()
    try:
        token = client.decode_timestamp_response(reply)
        builder = client.VerifierBuilder(roots=roots, nonce=nonce)
        builder.build().verify_message(token, content)
        info = token.tst_info
        time = info.gen_time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Stamp(time=time, authority=_signer(token), serial=str(info.serial_number))
    except (client.VerificationError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DamagedFileError(f"the timestamp does not hold ({error!s:.160}).") from error


def read_roots(content: bytes, name: str) -> Certificates:
    """Read certificates in PEM."""
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise DamagedFileError(f"{name} are not certificates in PEM ({error!s:.80}).") from error
    return list({certificate.fingerprint(SHA256()): certificate for certificate in found}.values())


def _signer(token: Any) -> str:
    (signer,) = token.signed_data.signer_infos
    for content in token.signed_data.certificates:
        certificate = x509.load_der_x509_certificate(content)
        if (certificate.issuer, certificate.serial_number) == (signer.issuer, signer.serial_number):
            return certificate.subject.rfc4514_string()
    raise ValueError("the signer's certificate is not in the token")


def _client() -> Any:
    return needed("rfc3161_client", extra="evidence", what="a timestamp")
