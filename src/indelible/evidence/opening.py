"""What a challenge decides: which samples are opened, which decoys are asked, in which order.

The claimant must not choose any of the three after looking at the suspect: whoever may leave out samples, or stop when
it suits him, gets any verdict he wants. So the commitment fixes how many claims there may be and how many samples each
opens, the claim's number fixes a part of the samples that no other claim opens, and the challenge decides the rest.

    parts   = blocks of a permutation of all samples, by the root: claim k opens samples of part k only
    seed    = SHA-256("indelible/evidence/challenge/1" || commitment digest || challenge)
    opened  = the first n of a permutation of the part, by the seed; n was committed to
    decoys  = keys with the settings of the committed one and secrets HKDF(seed, "decoy/i")

The number of the claim is all that is left to choose; every claim decides at alpha / claims, so that this is paid for.
An auditor's challenge is any text that the claimant could not foresee. Without an auditor, the number of the claim
stands in its place: there is nothing more to choose, but the claimant can know the outcome early.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.data.images import ImageData
from indelible.keys.derive import Choices, expand
from indelible.keys.key import Key, WatermarkSamples

__all__ = ["DECOYS", "challenge_seed", "decoy_samples", "default_challenge", "opened_indices"]

DECOYS = 20
_LONGEST = 1000


def default_challenge(number: int) -> str:
    """Return the challenge of a claim that no auditor has set."""
    return f"claim {number}"


def challenge_seed(commitment: str, challenge: str) -> bytes:
    """Return the 32 bytes that decide a claim's choices; ``commitment`` is the digest of the statement."""
    if not 0 < len(challenge) <= _LONGEST:
        raise InputError(f"a challenge is a text of 1 to {_LONGEST} characters, but has {len(challenge)}.")
    words = b"indelible/evidence/challenge/1" + bytes.fromhex(commitment) + challenge.encode(errors="surrogatepass")
    return hashlib.sha256(words).digest()


def opened_indices(seed: bytes, root: str, *, size: int, parts: int, number: int, opens: int) -> list[int]:
    """Return which of ``size`` samples claim ``number`` opens, in rising order.

    Args:
        seed: Of the challenge.
        root: The Merkle root, in hexadecimal; it decides the parts.
        size: Committed samples.
        parts: Claims that the commitment allows.
        number: Of this claim, from 0.
        opens: Samples that each claim opens.
    """
    if not 0 <= number < parts:
        raise InputError(f"the commitment allows {parts} claims, but this would be number {number + 1}. It is used up.")
    room = size // parts
    if not 0 < opens <= room:
        raise InputError(f"{opens} samples are to be opened in each claim, but {size} in {parts} parts give {room}.")
    shared = hashlib.sha256(b"indelible/evidence/parts/1" + bytes.fromhex(root)).digest()
    part = Choices(shared, "parts").permutation(size)[number * room : (number + 1) * room]
    return sorted(part[Choices(seed, "opened").permutation(room)[:opens]].tolist())


def decoy_samples(public: Mapping[str, Any], seed: bytes, carriers: ImageData) -> list[WatermarkSamples]:
    """Return the samples of every decoy key on the carriers of the opened samples."""
    return [_decoy(public, expand(seed, f"decoy/{number}")).samples(carriers, purpose="verify")
            for number in range(DECOYS)]  # fmt: skip


def _decoy(public: Mapping[str, Any], secret: bytes) -> Key:
    given = {field.name for field in fields(Key)} - {"pool", "secret", "scheme"}
    settings = {name: value for name, value in public.items() if name in given}
    try:
        return Key(**{**settings, "shape": tuple(settings["shape"])}, scheme="derived", secret=secret)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndelibleError) as error:
        raise DamagedFileError(f"the commitment's settings of the key cannot be used ({error!s:.120}).") from error
