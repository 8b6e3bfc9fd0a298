"""What a challenge decides: which samples, or marks of a codebook, are opened.

The claimant must not choose them after looking at the suspect (docs/evidence.md). So the commitment fixes how many
claims there may be and how many samples each opens, the claim's number fixes a part of the samples that no other claim
opens, and the challenge decides the rest.

    parts   = blocks of a permutation of all samples, by the root: claim k opens samples of part k only
    seed    = SHA-256("indelible/evidence/challenge/1" || commitment digest || challenge)
    opened  = the first n of a permutation of the part, by the seed; n was committed to

The number of the claim is all that is left to choose; every claim decides at alpha / claims, so that this is paid for.
A commitment to one claim that opens everything asks the same questions every time, and may be used again. Without an
auditor's challenge, the number of the claim stands in its place.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.merkle import audit_paths, root_from_path
from indelible.data.digests import image_digests
from indelible.evidence.canonical import require
from indelible.keys.derive import Choices
from indelible.keys.key import Key, WatermarkSamples

_LONGEST = 1000
_MOST_CLASSES = 1 << 20


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
    return root_from_path(leaf, index, count, [bytes.fromhex(one) for one in path]) == bytes.fromhex(root)


def check_pictures(found: Tensor, digests: Sequence[str], shape: Sequence[int], what: str) -> None:
    """Refuse images of a bundle that are not uint8 (n, C, H, W) with the digests that the claim shows."""
    whole = found.dtype == torch.uint8 and list(found.shape) == [len(digests), *shape]
    require(whole, f"the {what} are not {len(digests)} images of the committed shape")
    for place, (digest, actual) in enumerate(zip(digests, image_digests(found), strict=True)):
        require(digest == actual, f"image {place} of the {what} is not the one of the claim")


def settings_key(public: Mapping[str, Any], secret: bytes) -> Key:
    """Return a key with the settings of a commitment, which are checked by that, and another secret."""
    try:
        return Key.of(public, secret, scheme="derived")
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndelibleError) as error:
        raise DamagedFileError(f"the commitment's settings of the key cannot be used ({error!s:.120}).") from error


def checked_settings(public: Mapping[str, Any]) -> Key:
    """Return a key with the settings of a commitment, without its secret; refuse settings that no key has.

    Samples with keyed labels are shown as they are: what kind of mark they carry need not be known here.
    """
    made = settings_key({**public, "kind": "plain"} if public.get("labels") == "keyed" else public, bytes(32))
    again = {**made.public(), **{name: public.get(name) for name in ("scheme", "kind", "pool")}}
    odd = sorted((again.keys() ^ public.keys()) | {name for name in public if again.get(name) != public[name]})
    given = ", ".join(f"{name} {public.get(name)!r:.20}" for name in odd)
    require(not odd, f"the commitment's settings of the key cannot be used by this version: {given:.120}.")
    require(made.classes <= _MOST_CLASSES, f"the commitment is of a key of {made.classes} classes, which are too many.")
    return made
