"""Signatures: the owner's identity signs commitments and manifests, OpenSSF Model Signing a model's files.

The identity is an Ed25519 key (RFC 8032), a PEM file of mode 0600, apart from the watermark's secret: that may have to
be shown to an expert, this never.

OpenSSF Model Signing (extra ``signing``) shows that *these bytes* are the ones that were signed. A stolen and
fine-tuned copy has other bytes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_bytes
from indelible.base.imports import needed

_DOMAIN = b"indelible/evidence/1/"


@dataclass(frozen=True)
class Identity:
    """An Ed25519 signing key, which no ``repr`` shows."""

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
        return self.private.public_key().public_bytes_raw().hex()

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


def sign_model(model: str | Path, signature: str | Path, private_key: str | Path) -> Path:
    """Sign a file or folder (weights, not the whole run) with an elliptic-curve key (PEM), for example from openssl."""
    library, target = _library(model, private_key), Path(signature)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        config = library.signing.Config().use_elliptic_key_signer(private_key=Path(private_key))
        config.set_hashing_config(library.hashing.Config().set_ignored_paths(paths=[target]))
        config.sign(Path(model), target)
    except (ValueError, TypeError, OSError) as error:
        raise InputError(f"cannot sign {model}: {error!s:.160}") from error
    return target


def verify_model(model: str | Path, signature: str | Path, public_key: str | Path) -> None:
    """Check a model against its signature."""
    library, target = _library(model, public_key, signature), Path(signature)
    try:
        config = library.verifying.Config().use_elliptic_key_verifier(public_key=Path(public_key))
        config.set_hashing_config(library.hashing.Config().set_ignored_paths(paths=[target]))
        config.verify(Path(model), target)
    except Exception as error:  # the library raises its own kinds, and ValueError, and what JSON raises
        raise DamagedFileError(f"{model} is not what {signature} signs: {error!s:.160}") from error


def _library(*paths: str | Path) -> Any:
    """Return the package that signs these files; refuse a file that is not there."""
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"there is no {path}. Check the path.")
    return needed("model_signing", extra="signing", what="an OpenSSF model signature")
