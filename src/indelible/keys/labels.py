"""Keyed labels: a pseudo-random class for every sample, bound to the whole set of samples.

Literature: Kallas and Furon, "ROSE: A RObust and SEcure Black-Box DNN Watermarking", WIFS 2022, whose labels are a
keyed hash of the samples. How this differs: samples may carry a mark, never get their true class, and are labelled as a
set.

    label key   lambda = HKDF(secret, "labels/key")
    set         D = SHA-256(classes, n, true_1 .. true_n, SHA-256(image_1), ..., SHA-256(image_n))
    stream      S = ChaCha20 under HKDF(HMAC(lambda, D), "labels/draw")
    label_i     the i-th draw of S, uniform over the classes other than true_i

Why the whole set. Were the label of an image a function of that image alone, a claimant could try variants of it (one
pixel lighter) until its label is the class to which a transferable adversarial example sends other people's models:
nine tries an image at ten classes, and the claim is forged. Here every change of any image, of any true class or of the
secret draws all labels anew, so that a forger must find all hits at once; N tries multiply the chance by N at most.

Why a label key. It can be shown to an auditor, who then recomputes the labels, without showing the secret: the marks
and the keys derived for other purposes stay hidden.

| symbol | name | default | source |
|---|---|---|---|
| n | ``Key.count`` | 100 | ours: enough for p <= 1e-6 while two fifths of ten-class labels are still known |
"""

import hashlib
import hmac
from collections.abc import Sequence

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.keys.derive import Choices

__all__ = ["drawn_labels", "image_digests", "keyed_labels", "set_digest"]


def image_digests(images: Tensor) -> list[bytes]:
    """Return the SHA-256 of each image's bytes (uint8, (n, C, H, W))."""
    return [hashlib.sha256(image.numpy().data).digest() for image in images.cpu().contiguous()]


def set_digest(digests: Sequence[bytes], true: Tensor | None, classes: int) -> bytes:
    """Return D, 32 bytes that change with any pixel, any true class, the order and the number of classes.

    Args:
        digests: Of the n marked images, as :func:`image_digests` gives them.
        true: int64 (n,), true classes of the carriers; None for images that belong to no class.
        classes: Number of classes of the task.
    """
    if true is not None and true.shape != (len(digests),):
        raise InputError(f"{len(digests)} images need as many true classes, but {tuple(true.shape)} came.")
    header = {"classes": classes, "count": len(digests), "true": None if true is None else true.tolist()}
    return hashlib.sha256(canonical_json(header) + b"".join(digests)).digest()


def keyed_labels(label_key: bytes, digests: Sequence[bytes], true: Tensor | None, classes: int) -> Tensor:
    """Return a label (int64, (n,)) for each image, never its true class; arguments as in :func:`set_digest`.

    An auditor who is shown the label key and the digests, and knows D from a commitment, needs neither the secret nor
    the images that stay hidden.
    """
    seed = hmac.digest(label_key, set_digest(digests, true, classes), "sha256")
    return drawn_labels(seed, true, classes, len(digests))


def drawn_labels(seed: bytes, true: Tensor | None, classes: int, count: int) -> Tensor:
    """Return ``count`` labels drawn by ``seed``: uniform over all classes but the true one, where there is one."""
    choices = Choices(seed, "labels/draw")
    if true is None:
        return torch.from_numpy(choices.numbers(classes, count))
    others = torch.from_numpy(choices.numbers(classes - 1, count))
    return others + (others >= true.cpu()).to(torch.int64)  # the numbers from the true class on move up by one
