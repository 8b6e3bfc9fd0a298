"""What a challenge decides: which samples, or marks of a codebook, are opened, and in which order they are asked.

The claimant must not choose them after looking at the suspect: whoever may leave out samples, or stop when
it suits him, gets any verdict he wants. So the commitment fixes how many claims there may be and how many samples each
opens, the claim's number fixes a part of the samples that no other claim opens, and the challenge decides the rest.

    parts   = blocks of a permutation of all samples, by the root: claim k opens samples of part k only
    seed    = SHA-256("indelible/evidence/challenge/1" || commitment digest || challenge)
    opened  = the first n of a permutation of the part, by the seed; n was committed to
    decoys  = those of the key, HKDF(secret, "decoy/i"): the ones that :func:`indelible.verify` asks, so that both come
              to one verdict; their hash was committed to

The number of the claim is all that is left to choose; every claim decides at alpha / claims, so that this is paid for.
A commitment to one claim that opens everything asks the same questions every time. It leaves nothing to choose and may
be used again, against other suspects.
An auditor's challenge is any text that the claimant could not foresee. Without an auditor, the number of the claim
stands in its place: there is nothing more to choose, but the claimant can know the outcome early.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.data.images import ImageData
from indelible.keys.derive import Choices
from indelible.keys.key import Key, WatermarkSamples

__all__ = [
    "DECOYS",
    "challenge_seed",
    "decoy_samples",
    "decoy_secrets",
    "decoys_digest",
    "default_challenge",
    "opened_indices",
    "settings_key",
    "shown_decoys",
]

DECOYS = 20
_DECOY_SAMPLES = 1000  # of each decoy key, at most: as many as a verification asks
_LONGEST = 1000
_HEX = re.compile(r"[0-9a-f]{64}")


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
    if parts == 1 and opens == size and number >= 0:
        return list(range(size))
    if not 0 <= number < parts:
        raise InputError(f"the commitment allows {parts} claims, but this would be number {number + 1}. It is used up.")
    room = size // parts
    if not 0 < opens <= room:
        raise InputError(f"{opens} samples are to be opened in each claim, but {size} in {parts} parts give {room}.")
    shared = hashlib.sha256(b"indelible/evidence/parts/1" + bytes.fromhex(root)).digest()
    part = Choices(shared, "parts").permutation(size)[number * room : (number + 1) * room]
    return sorted(part[Choices(seed, "opened").permutation(room)[:opens]].tolist())


def decoy_secrets(key: Key) -> list[bytes]:
    """Return the secrets of the key's decoys; they tell nothing of the key's own."""
    return [key.decoy(number).secret for number in range(DECOYS)]


def shown_decoys(shown: Any, committed: str | None) -> list[bytes]:
    """Return the secrets of the decoys that a claim shows, if they have the committed hash; none if none are asked."""
    if shown is None:
        return []
    if len(shown) != DECOYS or not all(isinstance(one, str) and _HEX.fullmatch(one) for one in shown):
        raise DamagedFileError(f"the claim does not show the secrets of {DECOYS} decoys: 64 hexadecimal digits each")
    secrets = [bytes.fromhex(one) for one in shown]
    if decoys_digest(secrets) != committed:
        raise DamagedFileError("the decoys are not those that were committed to")
    return secrets


def decoys_digest(secrets: Sequence[bytes]) -> str:
    """Return the hash by which a commitment fixes the decoys."""
    return hashlib.sha256(b"".join(secrets)).hexdigest()


def decoy_samples(
    public: Mapping[str, Any], secrets: Sequence[bytes], carriers: ImageData
) -> list[WatermarkSamples]:  # fmt: skip
    """Return the samples of every decoy key on the carriers of the opened samples."""
    target = public.get("target")
    room = len(carriers) if target is None else int((carriers.labels != target).sum())
    return [settings_key(public, secret).samples(carriers, purpose="verify", count=min(_DECOY_SAMPLES, room))
            for secret in secrets]  # fmt: skip


def settings_key(public: Mapping[str, Any], secret: bytes) -> Key:
    """Return a key with the settings of a commitment, which are checked by that, and another secret."""
    given = {field.name for field in fields(Key)} - {"pool", "secret", "scheme"}
    settings = {name: value for name, value in public.items() if name in given}
    try:
        return Key(**{**settings, "shape": tuple(settings["shape"])}, scheme="derived", secret=secret)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndelibleError) as error:
        raise DamagedFileError(f"the commitment's settings of the key cannot be used ({error!s:.120}).") from error
