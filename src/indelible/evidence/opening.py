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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.merkle import audit_paths, root_from_path
from indelible.data.images import ImageData
from indelible.keys.derive import Choices
from indelible.keys.key import Key, WatermarkSamples
from indelible.verification.suspect_queries import DECOY_SAMPLES, DECOYS

_LONGEST = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """What a claim asks: n opened samples, and decoys on their carriers; of a codebook, its m opened marks.

    ``labels`` (int64, (n,)) are the committed ones, of a codebook (m,) its classes; ``true`` the classes of the
    carriers, which all marks of a codebook share; ``plain`` the carriers without a mark, which an untargeted key asks
    as well.
    """

    samples: Tensor
    labels: Tensor
    true: Tensor | None
    decoys: Sequence[WatermarkSamples] = ()
    plain: Tensor | None = None


def default_challenge(number: int) -> str:
    """Return the challenge of a claim that no auditor has set."""
    return f"claim {number}"


def challenge_seed(commitment: str, challenge: str) -> bytes:
    """Return the 32 bytes that decide a claim's choices; ``commitment`` is the digest of the statement."""
    if not 0 < len(challenge) <= _LONGEST:
        raise InputError(f"a challenge must have 1 to {_LONGEST} characters, got {len(challenge)}.")
    words = b"indelible/evidence/challenge/1" + bytes.fromhex(commitment) + challenge.encode(errors="surrogatepass")
    return hashlib.sha256(words).digest()


def opened_indices(seed: bytes, root: str, *, size: int, parts: int, number: int, opens: int) -> list[int]:
    """Return which ``opens`` of ``size`` samples claim ``number`` of ``parts`` opens, in rising order."""
    if parts == 1 and opens == size and number >= 0:
        return list(range(size))
    if not 0 <= number < parts:
        raise InputError(f"the commitment allows {parts} claims, and all of them are made. Make a new commitment.")
    room = size // parts
    if not 0 < opens <= room:
        raise InputError(f"a claim can open 1..{room} of {size} samples in {parts} parts, got {opens}.")
    shared = hashlib.sha256(b"indelible/evidence/parts/1" + bytes.fromhex(root)).digest()
    part = Choices(shared, "parts").permutation(size)[number * room : (number + 1) * room]
    return sorted(part[Choices(seed, "opened").permutation(room)[:opens]].tolist())


def hex_paths(leaves: Sequence[bytes], indices: Sequence[int]) -> list[list[str]]:
    """Return the Merkle path of each of ``indices``, in hexadecimal."""
    return [[one.hex() for one in path] for path in audit_paths(leaves, indices)]


def leads_to(root: str, leaf: bytes, index: int, count: int, path: Sequence[str]) -> bool:
    """Tell whether a Merkle path in hexadecimal leads from the leaf at ``index`` of ``count`` to ``root``."""
    try:
        found = root_from_path(leaf, index, count, [bytes.fromhex(one) for one in path])
    except ValueError as error:
        raise DamagedFileError(f"the path of entry {index} is not a list of hashes") from error
    return found is not None and found.hex() == root


def decoy_secrets(key: Key) -> list[bytes]:
    """Return the secrets of the key's decoys; they tell nothing of the key's own."""
    return [key.decoy(number).secret for number in range(DECOYS)]


def shown_decoys(shown: Any, committed: str | None) -> list[bytes]:
    """Return the secrets of the decoys that a claim shows, if they have the committed hash; none if none are asked."""
    if shown is None:
        return []
    if len(shown) != DECOYS or not all(map(is_hash, shown)):
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
    """Return the samples of every decoy key on the carriers of the opened samples.

    Untargeted ones stand on all of them, in their order: each is held against the same carrier without a mark.
    """
    if public.get("labels") == "untargeted":
        rows = torch.arange(len(carriers))
        return [
            WatermarkSamples(
                settings_key(public, one).mark().apply(carriers.images), carriers.labels, rows, carriers.labels, True
            )
            for one in secrets
        ]
    target = public.get("target")
    room = len(carriers) if target is None else int((carriers.labels != target).sum())
    return [settings_key(public, secret).samples(carriers, purpose="verify", count=min(DECOY_SAMPLES, room))
            for secret in secrets]  # fmt: skip


def settings_key(public: Mapping[str, Any], secret: bytes) -> Key:
    """Return a key with the settings of a commitment, which are checked by that, and another secret."""
    try:
        return Key.of(public, secret, scheme="derived")
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndelibleError) as error:
        raise DamagedFileError(f"the commitment's settings of the key cannot be used ({error!s:.120}).") from error
