"""The owner's signing identity: an Ed25519 key (RFC 8032), as a PEM file of mode 0600.

It is apart from the watermark's secret: that may have to be shown to an expert, this never.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_bytes

__all__ = ["Identity", "is_signed"]

_DOMAIN = b"indelible/evidence/1/"


@dataclass(frozen=True)
class Identity:
    """A signing key.

    Attributes:
        private: The Ed25519 key, in no ``repr``.
    """

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def create(cls) -> Self:
        """Draw a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a key from a PEM file."""
        place = Path(path)
        try:
            found = load_pem_private_key(place.read_bytes(), password=None)
        except FileNotFoundError as error:
            raise InputError(f"there is no signing key {place}. Without it nothing can be claimed.") from error
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise DamagedFileError(f"{place} is not a private PEM key without a password ({error!s:.80}).") from error
        if not isinstance(found, Ed25519PrivateKey):
            raise InputError(f"{place} is not an Ed25519 key. Make one: openssl genpkey -algorithm ed25519.")
        return cls(found)

    def save(self, path: str | Path) -> None:
        """Write the key, readable by its owner only; one that is there is not overwritten."""
        place = Path(path)
        if place.exists():
            raise InputError(f"{place} exists already. A lost signing key cannot be made again.")
        pem = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_bytes(place, pem, mode=0o600)

    @property
    def public(self) -> str:
        """The public key: 32 bytes in hexadecimal."""
        return self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def sign(self, what: str, content: bytes) -> bytes:
        """Sign ``content`` as ``what``: a signature of one kind of document does not fit another."""
        return self.private.sign(_DOMAIN + what.encode() + b"\n" + content)


def is_signed(public: str, what: str, content: bytes, signature: bytes) -> bool:
    """Tell whether ``signature`` is that of the key ``public`` (64 hexadecimal digits) over ``content`` as ``what``."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(signature, _DOMAIN + what.encode() + b"\n" + content)
    except (InvalidSignature, ValueError):
        return False
    return True
