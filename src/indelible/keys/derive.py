"""Derive every choice of a key from its 256-bit secret.

Each choice has a label. HKDF-SHA-256 (RFC 5869) turns the secret and the label into a ChaCha20 key, whose key stream is
the randomness of that choice. Whoever holds the secret can repeat every choice; whoever does not cannot steer any of
them. Nothing is left for the owner to optimise, which is what makes a match with the key worth something.

The scheme is versioned: the same secret gives the same choices for as long as ``VERSION`` stays.
"""

import secrets

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy.special import ndtri

from indelible.base.errors import InputError

VERSION = 1
SECRET_BYTES = 32


def new_secret() -> bytes:
    """Draw a secret from the operating system's generator."""
    return secrets.token_bytes(SECRET_BYTES)


def check_secret(secret: object) -> bytes:
    """Refuse anything but 32 bytes, without showing the value."""
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        came = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise InputError(f"a secret must be {SECRET_BYTES} bytes, got {came}. Leave it out to draw a new one.")
    return secret


def expand(secret: bytes, label: str) -> bytes:
    """Return 32 bytes that only ``secret`` and ``label`` determine."""
    info = f"indelible/v{VERSION}/{label}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


class Choices:
    """The randomness of one choice, labelled such as ``"content/text"``; a call continues after the last one.

    Without a label, ``secret`` is ``expand(secret, label)``, which tells nothing else: what an auditor is shown.
    """

    def __init__(self, secret: bytes, label: str | None = None) -> None:
        key = secret if label is None else expand(secret, label)
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def bytes_(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        return self._stream.update(bytes(count))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` 64-bit words."""
        return np.frombuffer(self.bytes_(8 * count), dtype="<u8").astype(np.uint64)

    def below(self, bound: int) -> int:
        """Return a number in 0 .. bound - 1, exactly uniform (by rejection)."""
        limit = (1 << 64) // bound * bound
        while (word := int(self.words(1)[0])) >= limit:
            pass
        return word % bound

    def numbers(self, bound: int, count: int) -> npt.NDArray[np.int64]:
        """Return ``count`` numbers in 0 .. bound - 1, each exactly uniform: those that :meth:`below` would return."""
        limit, parts, missing = (1 << 64) // bound * bound, [], count
        while missing:
            words = self.words(missing)
            # At a bound that divides 2^64 the limit is 2^64 itself, beyond what a word can hold: nothing is rejected.
            kept = words if limit >> 64 else words[words < np.uint64(limit)]
            parts.append(kept % np.uint64(bound))
            missing -= len(kept)
        return np.concatenate([np.empty(0, np.uint64), *parts]).astype(np.int64)

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """Return a permutation of 0 .. count - 1."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """Return ``count`` standard normal numbers, by inverting the distribution function at 32-bit midpoints."""
        halves = np.frombuffer(self.bytes_(4 * count), dtype="<u4").astype(np.float64)
        numbers: npt.NDArray[np.float64] = ndtri((halves + 0.5) / 2.0**32)
        return numbers
