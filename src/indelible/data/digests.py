"""Digest of an image, by which query logs, commitments and keyed labels name it."""

import hashlib

import torch
from torch import Tensor

from indelible.base.errors import InputError


def image_digests(images: Tensor) -> list[str]:
    """Return the SHA-256 that names each image: over its shape and its pixels (uint8, row by row)."""
    pixels = images.contiguous().cpu()
    if pixels.dtype != torch.uint8 or pixels.ndim != 4:
        raise InputError(f"images must be uint8 (N, C, H, W), got {pixels.dtype} {tuple(pixels.shape)}.")
    head = b"indelible/image/1:" + ",".join(map(str, pixels.shape[1:])).encode() + b":"
    return [hashlib.sha256(head + image.numpy().tobytes()).hexdigest() for image in pixels]
