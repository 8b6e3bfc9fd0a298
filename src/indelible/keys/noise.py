"""The noise mark: one fixed Gaussian pattern added to the image (the paper's Section 4.1, "Noise").

A pattern z ~ N(0, 1) for every pixel and channel is drawn once; a marked image is ``clip(x + strength * z, 0, 1)`` with
strength 0.1. The pattern is held as whole steps of 1/255, so that the same key gives the same bytes everywhere.

A codebook has many patterns to tell apart, and a first layer with a stride blurs white noise. Its patterns are coarser:
one number for every square of ``grain`` x ``grain`` pixels.

| symbol | name | default | source |
|---|---|---|---|
| 0.1 | ``strength`` | 0.1 | the authors' settings |
| - | ``grain`` | 1 | the paper: every pixel for itself; ours in a codebook: an eighth of the image's side |
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from indelible.data.images import Shape
from indelible.keys.derive import SECRET_BYTES, Choices

__all__ = ["NoiseMark", "coarse_grain"]

# The literal pattern must be the same for everybody, so its "secret" is public: thirty-two zero bytes.
_PUBLIC = bytes(SECRET_BYTES)


def coarse_grain(shape: Shape) -> int:
    """Return the grain of a codebook's patterns: an eighth of the shorter side, at least one pixel."""
    return max(1, min(shape[1:]) // 8)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseMark:
    """A fixed pattern for images of one shape.

    Attributes:
        shape: (C, H, W) of the images.
        pattern: int16 (C, H, W), in steps of 1/255.
        strength: Standard deviation of the noise, relative to the range of a pixel.
        grain: Side in pixels of the squares that share one number.
    """

    shape: Shape
    pattern: Tensor
    strength: float = 0.1
    grain: int = 1

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, strength: float = 0.1, grain: int = 1) -> Self:
        """Draw the pattern by the secret."""
        channels, height, width = shape
        coarse = (channels, -(-height // grain), -(-width // grain))
        normal = Choices(secret, "noise/pattern").normal(math.prod(coarse))
        steps = np.rint(normal * (strength * 255.0)).astype(np.int16).reshape(coarse)
        whole = steps.repeat(grain, axis=1).repeat(grain, axis=2)[:, :height, :width]
        return cls(shape=shape, pattern=torch.from_numpy(whole.copy()), strength=strength, grain=grain)

    @classmethod
    def literal(cls, shape: Shape, *, strength: float = 0.1) -> Self:
        """Return one fixed, public pattern, as the paper's experiments used one."""
        return cls.derived(_PUBLIC, shape, strength=strength)

    def apply(self, images: Tensor) -> Tensor:
        """Add the pattern to uint8 images of shape (N, C, H, W)."""
        return (images.to(torch.int16) + self.pattern.to(images.device)).clamp_(0, 255).to(torch.uint8)
