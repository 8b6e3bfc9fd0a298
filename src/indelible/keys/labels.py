"""Keyed labels: a pseudo-random class for every sample, bound to the whole set of samples.

Literature: Kallas and Furon, "ROSE: A RObust and SEcure Black-Box DNN Watermarking", WIFS 2022, whose labels are a
keyed hash of the samples. How this differs: samples may carry a mark, never get their true class, and are labelled as a
set.

    salts       s_1 .. s_n: 32 bytes each of the ChaCha20 stream under HKDF(secret, "samples/salts")
    label key   lambda = HKDF(secret, "labels/key")
    set         R = Merkle root (RFC 6962) over (s_i, digest of image_i, true_i), i = 1 .. n
    stream      S = ChaCha20 under HKDF(HMAC(lambda, SHA-256(classes, n, R)), "labels/draw")
    label_i     the i-th draw of S, uniform over the classes other than true_i

Why the whole set. Were the label of an image a function of that image alone, a claimant could try variants of it (one
pixel lighter) until its label is the class to which a transferable adversarial example sends other people's models.
Here every change of any image, of any true class or of the secret draws all labels anew.

Why a label key, a tree and salts. An auditor draws the labels again from the label key and R, without the secret and
without the samples that are not opened (docs/evidence.md).

| symbol | name | default | source |
|---|---|---|---|
| n | ``Key.count`` | 100 | ours: enough for p <= 1e-6 while two fifths of ten-class labels are still known |
| R | ``root`` | - | ours |
"""

import hashlib
import hmac
from collections.abc import Sequence

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.base.merkle import leaf_hash, tree_root
from indelible.keys.derive import Choices, expand

_SALT = 32
_DOMAIN = b"indelible/label set/1:"


def label_key(secret: bytes) -> bytes:
    """Return lambda, which gives the labels of a known set and nothing else of the secret."""
    return expand(secret, "labels/key")


def sample_salts(secret: bytes, count: int) -> list[bytes]:
    """Return the salts of the first ``count`` samples; one that is shown tells nothing of another."""
    stream = Choices(secret, "samples/salts").bytes_(_SALT * count)
    return [stream[start : start + _SALT] for start in range(0, len(stream), _SALT)]


def set_leaf(salt: bytes, digest: str, true: int | None) -> bytes:
    """Return the hash of one sample in its set; ``true`` is None for an image that belongs to no class."""
    own = 0 if true is None else true + 1
    return leaf_hash(_DOMAIN + salt + bytes.fromhex(digest) + own.to_bytes(4, "big"))


def set_leaves(secret: bytes, digests: Sequence[str], true: Tensor | None) -> list[bytes]:
    """Return the hashes of a whole set of images with true classes ``true`` (int64, (n,)); their Merkle root is R."""
    if true is not None and true.shape != (len(digests),):
        raise InputError(f"{len(digests)} images need as many true classes, got {tuple(true.shape)}.")
    own: Sequence[int | None] = [None] * len(digests) if true is None else true.tolist()
    salts = sample_salts(secret, len(digests))
    return [set_leaf(*sample) for sample in zip(salts, digests, own, strict=True)]


def keyed_labels(secret: bytes, digests: Sequence[str], true: Tensor | None, classes: int) -> Tensor:
    """Return a label (int64, (n,)) for each image, never its true class; arguments as in :func:`set_leaves`."""
    root, count = tree_root(set_leaves(secret, digests, true)), len(digests)
    return drawn_labels(label_key(secret), root, torch.arange(count), true, classes=classes, count=count)


def drawn_labels(
    shown: bytes, root: bytes, rows: Tensor, true: Tensor | None, *, classes: int, count: int
) -> Tensor:  # fmt: skip
    """Return the labels (int64, (m,)) of the samples at ``rows``: what an auditor computes, without the secret.

    ``shown`` is the label key, ``root`` R of the whole set of ``count`` samples, ``true`` (int64, (m,)) the true
    classes.
    """
    about = canonical_json({"classes": classes, "count": count, "true": true is not None})
    seed = hmac.digest(shown, hashlib.sha256(about + root).digest(), "sha256")
    choices = Choices(seed, "labels/draw")
    if true is None:
        return torch.from_numpy(choices.numbers(classes, count))[rows]
    others = torch.from_numpy(choices.numbers(classes - 1, count))[rows]
    return others + (others >= true.cpu()).to(torch.int64)  # the numbers from the true class on move up by one
