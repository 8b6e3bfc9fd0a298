"""The codebook: K marks, each with a class of its own that the secret draws.

A network that has seen one mark with one class learns "any text here" as readily as "this text", and nobody can tell
whose text it was. With K marks and K drawn classes it must learn which mark goes with which class, and whoever never
saw the key cannot know that. The test (:mod:`indelible.verification.statistics.codebook_tests`) is exact for any model.

    mark i       everything about it from HKDF(secret, "codebook/mark/i"); a second data set gives its i-th class
    class key    lambda = HKDF(secret, "codebook/classes")
    marks        M = Merkle root over (i, seed of mark i), i = 0 .. K - 1
    carriers     R = Merkle root (RFC 6962) over (salt, digest, true class) of the images set aside for verification;
                 empty if none were
    class of i   the i-th draw of ChaCha20 under HKDF(HMAC(lambda, SHA-256(C, K, M, R)), "codebook/draw"), uniform over
                 all C classes, independently of all others; two marks may share a class

Why classes depend on M and R: an auditor is shown seeds and carriers, and not that they come from a secret. Free ones
could be sought one by one, until other people's models answer a mark with its class. Here another seed for any mark, or
any change of a carrier, draws all classes anew. Without R, the auditor must bring the carriers.

| symbol | name | default | source |
|---|---|---|---|
| K | ``Key.marks`` | :func:`default_marks`: 32 at two classes, 16 at four to ten, 8 from a hundred on | ours |
| R | ``Key.bound`` | empty | ours |
"""

import hashlib
import hmac
from dataclasses import dataclass

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.base.merkle import leaf_hash, tree_root
from indelible.data.digests import image_digests
from indelible.data.images import Data, Shape
from indelible.keys.derive import Choices, expand
from indelible.keys.labels import set_leaves
from indelible.keys.marks import Mark, Purpose, Stamps
from indelible.keys.samples import WatermarkSamples

# K by default. Few classes: as many marks as at ten, and enough for alpha = 1e-6 with room for marks that an attack
# removes. Many classes: one mark proves more, and fewer marks cost less accuracy (docs/verification.md).
_MARKS = 16
_LEAST = 8
_BITS = 32
_MOST_PROOF = 10**16
# Carriers of each mark that a codebook is verified with by default, and what all samples together may take in memory.
_CARRIERS = 200
_SAMPLE_BYTES = 1 << 28
_DOMAIN = b"indelible/codebook mark/1:"


def default_marks(classes: int) -> int:
    """Return K for a task of ``classes`` classes.

    Up to ten classes at least 16, and enough that C^-K is at most 2^-32. Beyond, the fewest of 8 or more for which C^-K
    is at most 1e-16, which is what 16 marks have at ten classes.
    """
    marks, reach = (_MARKS, 1 << _BITS) if classes <= 10 else (_LEAST, _MOST_PROOF)
    while 1 < classes**marks < reach:
        marks += 1
    return marks


def mark_seed(secret: bytes, number: int) -> bytes:
    """Return the 32 bytes that decide everything about mark ``number``, and tell nothing of the others."""
    return expand(secret, f"codebook/mark/{number}")


def mark_leaves(secret: bytes, marks: int) -> list[bytes]:
    """Return one leaf for every mark; their root is M."""
    return [mark_leaf(number, mark_seed(secret, number)) for number in range(marks)]


def marks_root(secret: bytes, marks: int) -> bytes:
    """Return M, the root over the seeds of all marks."""
    return tree_root(mark_leaves(secret, marks))


def mark_leaf(number: int, seed: bytes) -> bytes:
    """Return the hash of mark ``number`` in its tree; a seed is as hard to guess as the secret."""
    return leaf_hash(_DOMAIN + number.to_bytes(4, "big") + seed)


def most_carriers(shape: Shape, marks: int) -> int:
    """Return how many carriers each mark is asked on by default: 200, fewer if the samples would be too large."""
    channels, height, width = shape
    return min(_CARRIERS, max(1, _SAMPLE_BYTES // (marks * channels * height * width)))


def choice_key(secret: bytes) -> bytes:
    """Return what decides which carriers are asked in a verification, and tells nothing else of the secret."""
    return expand(secret, "carriers/verify")


def bound_leaves(secret: bytes, images: Data | Tensor) -> list[bytes]:
    """Return the leaves whose root is R: of carriers that are set aside, or of a pool (K, M, C, H, W)."""
    if isinstance(images, Tensor):
        return set_leaves(secret, image_digests(images.flatten(0, 1)), None)
    held = images.gather(torch.arange(len(images)))
    return set_leaves(secret, image_digests(held.images.cpu()), held.labels.cpu())


def chosen_rows(choices: Choices, count: int, each: int) -> Tensor:
    """Return which ``each`` of ``count`` carriers are asked, in rising order: int64 (each,)."""
    return torch.from_numpy(choices.permutation(max(count, each)))[:each].sort().values


def class_key(secret: bytes) -> bytes:
    """Return lambda, which gives the classes of the marks and nothing else of the secret."""
    return expand(secret, "codebook/classes")


def drawn_classes(shown: bytes, root: bytes, *, classes: int, marks: int) -> Tensor:
    """Return the class of every mark (int64, (K,)) without the secret; ``root`` is M, then R if there are carriers."""
    about = canonical_json({"classes": classes, "marks": marks})
    seed = hmac.digest(shown, hashlib.sha256(about + root).digest(), "sha256")
    return torch.from_numpy(Choices(seed, "codebook/draw").numbers(classes, marks))


@dataclass(frozen=True, eq=False)
class Codebook:
    """K marks and the class of each (int64, (K,))."""

    marks: tuple[Mark, ...]
    classes: Tensor

    def __len__(self) -> int:
        return len(self.marks)

    def draw(self, carriers: Data | None, rows: Tensor, count: int, purpose: Purpose) -> Tensor:
        """Return ``count`` images of every mark, all on the same ``rows`` of carriers: uint8 (K * count, C, H, W)."""
        plain = None if carriers is None else carriers.gather(rows).images.cpu()
        return torch.cat([mark.samples(plain, count, purpose) for mark in self.marks])

    def samples(self, secret: bytes, carriers: Data, purpose: Purpose, count: int | None) -> WatermarkSamples:
        """Return ``count`` samples, as many of every mark and all on the same carriers; by default 200 of each."""
        marks, most = len(self), most_carriers(self.marks[0].shape, len(self))
        own = self.marks[0].own_images
        room = min(mark.capacity(purpose) or most for mark in self.marks) if own else len(carriers)
        each = min(most, room) if count is None else count // marks
        if each < 1 or each > room:
            raise InputError(
                f"a codebook of {marks} marks asks every mark on the same carriers: a number of samples from {marks} "
                f"to {marks * room} is possible here, got {count or 0}."
            )
        rows = chosen_rows(Choices(secret, f"carriers/{purpose}"), len(carriers), each)
        images = self.draw(None if own else carriers, rows, each, purpose)
        which = torch.arange(marks).repeat_interleave(each)
        true = None if own else carriers.labels.cpu()[rows].repeat(marks)
        return WatermarkSamples(images, self.classes[which], rows.repeat(marks), true, marks=which)

    def stamps(self, device: torch.device | str = "cpu") -> Stamps:
        """Return the marks on ``device``, to be put on rows of a training batch."""
        return self.marks[0].stamps(self.marks, torch.device(device))
