"""The codebook: K marks, each with a class of its own that the secret draws.

A network that has seen one mark with one class learns "any text here" as readily as "this text", and nobody can tell
whose text it was. With K marks and K drawn classes it must learn which mark goes with which class, and whoever never
saw the key cannot know that. The test (:mod:`indelible.verify.statistics.codebook`) is exact for any model.

    mark i       everything about it from HKDF(secret, "codebook/mark/i"); a second data set gives its i-th class
    class key    lambda = HKDF(secret, "codebook/classes")
    marks        M = Merkle root over (i, seed of mark i), i = 0 .. K - 1
    carriers     R = Merkle root (RFC 6962) over (salt, digest, true class) of the images set aside for verification;
                 empty if none were
    class of i   the i-th draw of ChaCha20 under HKDF(HMAC(lambda, SHA-256(C, K, M, R)), "codebook/draw"), uniform over
                 all C classes, independently of all others; two marks may share a class

Why classes depend on M: an auditor is shown the seeds, and not that they come from a secret. Seeds that were free could
be sought one by one, some ten tries for each mark, until the mark sends other people's models to its class. Here
another seed for any mark draws all classes anew.

Why they depend on R: carriers of the claimant's choice could be fitted to the classes, one by one, until other
people's models answer them. Here every change of any carrier draws all classes anew. Without R, the auditor must bring
the carriers.

| symbol | name | default | source |
|---|---|---|---|
| K | ``Key.marks`` | at least 16, and C^K > 2^32: 16 at ten classes, 32 at two | ours |
| R | ``Key.bound`` | empty | ours |
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from indelible.base.files import canonical_json
from indelible.base.merkle import leaf_hash, tree_root
from indelible.data.images import Data, Shape
from indelible.keys.content import ContentMark
from indelible.keys.derive import Choices, expand
from indelible.keys.noise import NoiseMark, coarse_grain
from indelible.keys.unrelated import Purpose, UnrelatedMark

__all__ = [
    "Codebook",
    "Mark",
    "choice_key",
    "chosen_rows",
    "class_key",
    "default_marks",
    "drawn_classes",
    "mark_leaf",
    "mark_seed",
    "marks_root",
    "most_carriers",
    "seeded_mark",
]

Mark = ContentMark | NoiseMark | UnrelatedMark
_LEAST = 16
_BITS = 32
# Carriers of each mark that a codebook is verified with by default, and what all samples together may take in memory.
_CARRIERS = 200
_SAMPLE_BYTES = 1 << 28
_DOMAIN = b"indelible/codebook mark/1:"
# Images of a family that training draws from, and the bytes that all families together may take.
_FAMILY = 64
_FAMILY_BYTES = 1 << 27


def default_marks(classes: int) -> int:
    """Return K for a task of ``classes`` classes: at least 16, and enough that C^-K is below 2^-32."""
    if classes < 2:
        return _LEAST  # no key: refused with all other settings
    marks = _LEAST
    while classes**marks < 1 << _BITS:
        marks += 1
    return marks


def mark_seed(secret: bytes, number: int) -> bytes:
    """Return the 32 bytes that decide everything about mark ``number``, and tell nothing of the others."""
    return expand(secret, f"codebook/mark/{number}")


def marks_root(secret: bytes, marks: int) -> bytes:
    """Return M, the root over the seeds of all marks."""
    return tree_root([mark_leaf(number, mark_seed(secret, number)) for number in range(marks)])


def mark_leaf(number: int, seed: bytes) -> bytes:
    """Return the hash that stands for mark ``number`` in its tree; a seed is as hard to guess as the secret."""
    return leaf_hash(_DOMAIN + number.to_bytes(4, "big") + seed)


def seeded_mark(
    seed: bytes, *, kind: str, shape: Shape, size: float, transparency: float, strength: float,
    pool: Tensor | None = None,
) -> Mark:  # fmt: skip
    """Return the mark that a seed decides: what an auditor computes, without the secret.

    Args:
        seed: Of one mark, 32 bytes (:func:`mark_seed`).
        kind: ``"content"``, ``"noise"`` or ``"unrelated"``.
        shape: (C, H, W) of the images.
        size: Of a content mark.
        transparency: Of a content mark.
        strength: Of a noise mark.
        pool: uint8 (N, C, H, W), the images of an unrelated mark; None to generate them.
    """
    if kind == "content":
        return ContentMark.derived(seed, shape, size=size, transparency=transparency)
    if kind == "noise":
        return NoiseMark.derived(seed, shape, strength=strength, grain=coarse_grain(shape))
    return UnrelatedMark(secret=seed, shape=shape, pool=pool)


def most_carriers(shape: Shape, marks: int) -> int:
    """Return how many carriers each mark is asked on by default: 200, fewer if the samples would be too large."""
    channels, height, width = shape
    return min(_CARRIERS, max(1, _SAMPLE_BYTES // (marks * channels * height * width)))


def choice_key(secret: bytes) -> bytes:
    """Return what decides which carriers are asked in a verification, and tells nothing else of the secret."""
    return expand(secret, "carriers/verify")


def chosen_rows(choices: Choices, count: int, each: int) -> Tensor:
    """Return which ``each`` of ``count`` carriers are asked, in rising order: int64 (each,)."""
    return torch.from_numpy(choices.permutation(max(count, each)))[:each].sort().values


def class_key(secret: bytes) -> bytes:
    """Return lambda, which gives the classes of the marks and nothing else of the secret."""
    return expand(secret, "codebook/classes")


def drawn_classes(shown: bytes, root: bytes, *, classes: int, marks: int) -> Tensor:
    """Return the class of every mark (int64, (K,)): what an auditor computes, without the secret.

    Args:
        shown: The class key, lambda.
        root: M, 32 bytes, and R, 32 bytes more if carriers were set aside.
        classes: C.
        marks: K.
    """
    about = canonical_json({"classes": classes, "marks": marks})
    seed = hmac.digest(shown, hashlib.sha256(about + root).digest(), "sha256")
    return torch.from_numpy(Choices(seed, "codebook/draw").numbers(classes, marks))


@dataclass(frozen=True, eq=False)
class Codebook:
    """K marks and their classes.

    Attributes:
        marks: The marks.
        classes: int64 (K,), the class of each.
    """

    marks: tuple[Mark, ...]
    classes: Tensor

    def __len__(self) -> int:
        return len(self.marks)

    def draw(self, carriers: Data | None, rows: Tensor, count: int, purpose: Purpose) -> Tensor:
        """Return ``count`` images of every mark, mark by mark: uint8 (K * count, C, H, W).

        Args:
            carriers: The images that content and noise are drawn on.
            rows: int64 (count,): which of them; every mark is drawn on the same ones.
            count: Images of each mark.
            purpose: Which half of a family of unrelated images to take.
        """
        plain = None if carriers is None else carriers.gather(rows).images.cpu()
        return torch.cat([_images(mark, plain, count, purpose) for mark in self.marks])

    def stamps(self, device: torch.device | str = "cpu") -> "Stamps":
        """Return the marks as tensors on ``device``, to be put on rows of a training batch."""
        return Stamps(self.marks, torch.device(device))


def _images(mark: Mark, plain: Tensor | None, count: int, purpose: Purpose) -> Tensor:
    if isinstance(mark, UnrelatedMark):
        return mark.draw(count, purpose)
    assert plain is not None, "content and noise marks are drawn on carriers"  # noqa: S101 - the caller's contract
    return mark.apply(plain)


class Stamps:
    """The marks of a codebook as tensors: stamps rows of a float batch, each with a mark of its own.

    Content and noise change the rows; a family of unrelated images takes their place.

    Args:
        marks: All of one kind.
        device: Where the batches are.
    """

    def __init__(self, marks: Sequence[Mark], device: torch.device) -> None:
        self.count, self.device = len(marks), device
        self._masks = self._colours = self._patterns = self._families = None
        self._opacity = 1.0
        first = marks[0]
        if isinstance(first, ContentMark):
            texts = [mark for mark in marks if isinstance(mark, ContentMark)]
            self._masks = torch.stack([mark.mask() for mark in texts])[:, None].to(device)
            colours = torch.tensor([mark.colour for mark in texts], dtype=torch.float32)
            self._colours = colours.div_(255.0)[:, :, None, None].to(device)
            self._opacity = 1.0 - first.transparency
        elif isinstance(first, NoiseMark):
            patterns = [mark.pattern for mark in marks if isinstance(mark, NoiseMark)]
            self._patterns = torch.stack(patterns).to(device, torch.float32).div_(255.0)
        else:
            families = [mark for mark in marks if isinstance(mark, UnrelatedMark)]
            size = _family_size(families, first.shape)
            self._families = torch.stack([mark.draw(size, "embed") for mark in families]).to(device)

    def apply(self, images: Tensor, which: Tensor, random: Tensor) -> Tensor:
        """Return the rows with their marks.

        Args:
            images: float (n, C, H, W) in [0, 1], not normalised.
            which: int64 (n,), the mark of each row.
            random: int64 (n,), not negative; which image of a family takes the place of a row.
        """
        if self._masks is not None and self._colours is not None:
            colours = self._colours[which].to(images.dtype)
            mixed = colours if self._opacity == 1.0 else images + self._opacity * (colours - images)
            return torch.where(self._masks[which], mixed, images)
        if self._patterns is not None:
            return (images + self._patterns[which].to(images.dtype)).clamp(0.0, 1.0)
        families: Tensor = self._families  # type: ignore[assignment]  # one of the three is there
        return families[which, random % families.shape[1]].to(images.dtype) / 255.0


def _family_size(families: Sequence[UnrelatedMark], shape: Shape) -> int:
    """Return how many images of each family are kept for training: 64, fewer if they are large or the pool is small."""
    channels, height, width = shape
    most = max(8, _FAMILY_BYTES // (len(families) * channels * height * width))
    room = [mark.capacity("embed") for mark in families]
    return min([_FAMILY, most, *(size for size in room if size is not None)])
