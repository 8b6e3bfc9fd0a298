"""Keyed labels: a pseudo-random class for every sample, bound to the whole set of samples.

Literature: Kallas and Furon, "ROSE: A RObust and SEcure Black-Box DNN Watermarking", WIFS 2022, whose labels are a
keyed hash of the samples. How this differs: samples may carry a mark, never get their true class, and are labelled as a
set.

    label key   lambda = HKDF(secret, "labels/key")
    set         D = SHA-256(classes, (SHA-256(image_1), true_1), ..., (SHA-256(image_n), true_n))
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

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.keys.derive import Choices

__all__ = ["drawn_labels", "keyed_labels", "set_digest"]


def set_digest(images: Tensor, true: Tensor | None, classes: int) -> bytes:
    """Return D, 32 bytes that change with any pixel, any true class, the order and the number of classes.

    Args:
        images: uint8 (n, C, H, W), the marked images.
        true: int64 (n,), true classes of the carriers; None for images that belong to no class.
        classes: Number of classes of the task.
    """
    header = {"classes": classes, "shape": list(images.shape), "true": None if true is None else true.tolist()}
    found = hashlib.sha256(canonical_json(header))
    for image in images.cpu().contiguous():
        found.update(hashlib.sha256(image.numpy().data).digest())
    return found.digest()


def keyed_labels(label_key: bytes, images: Tensor, true: Tensor | None, classes: int) -> Tensor:
    """Return a label (int64, (n,)) for each image, never its true class; arguments as in :func:`set_digest`."""
    seed = hmac.digest(label_key, set_digest(images, true, classes), "sha256")
    return drawn_labels(seed, true, classes, len(images))


def drawn_labels(seed: bytes, true: Tensor | None, classes: int, count: int) -> Tensor:
    """Return ``count`` labels drawn by ``seed``: uniform over all classes but the true one, where there is one."""
    choices = Choices(seed, "labels/draw")
    if true is None:
        return torch.from_numpy(choices.numbers(classes, count))
    if true.shape != (count,):
        raise InputError(f"{count} images need as many true classes, but {tuple(true.shape)} came.")
    others = torch.from_numpy(choices.numbers(classes - 1, count))
    return others + (others >= true.cpu()).to(torch.int64)  # the numbers from the true class on move up by one
