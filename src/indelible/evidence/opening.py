"""What a challenge decides: which samples are opened, which decoys are asked, in which order.

The claimant must not choose any of the three after looking at the suspect. An auditor's challenge (any text that the
claimant could not foresee) fixes them all. Without an auditor, the commitment and the number of the claim stand in its
place: there is nothing to choose either, but the claimant can know the outcome early, and may have claimed before.

    seed    = SHA-256("indelible/evidence/challenge/1" || commitment digest || challenge)
    opened  = the first n of a permutation, by the seed, of the samples that no earlier claim opened
    decoys  = keys with the settings of the committed one and secrets HKDF(seed, "decoy/i")
"""

import hashlib
from collections.abc import Mapping, Sequence
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


def opened_indices(seed: bytes, size: int, count: int, previous: Sequence[Sequence[int]]) -> list[int]:
    """Return which of ``size`` samples are opened: ``count`` of those that no earlier claim opened, in rising order."""
    spent = {index for claim in previous for index in claim}
    free = [index for index in range(size) if index not in spent]
    if not 0 < count <= len(free):
        raise InputError(
            f"{count} samples are to be opened, but {len(free)} of {size} were not opened before. Open fewer; when "
            "none are left, the commitment is used up."
        )
    order = Choices(seed, "opened").permutation(len(free))[:count]
    return sorted(free[place] for place in order.tolist())


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
