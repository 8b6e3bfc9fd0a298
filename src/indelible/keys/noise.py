"""The noise mark: one fixed Gaussian pattern added to the image (the paper's Section 4.1, "Noise").

A pattern z ~ N(0, 1) for every pixel and channel is drawn once; a marked image is ``clip(x + strength * z, 0, 1)`` with
strength 0.1. The pattern is held as whole steps of 1/255, so that the same key gives the same bytes everywhere.

| symbol | name | default | source |
|---|---|---|---|
| 0.1 | strength | 0.1 | the authors' settings |
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from indelible.data.images import Shape
from indelible.keys.derive import SECRET_BYTES, Choices

__all__ = ["NoiseMark"]

# The literal pattern must be the same for everybody, so its "secret" is public: thirty-two zero bytes.
_PUBLIC = bytes(SECRET_BYTES)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseMark:
    """A fixed pattern for images of one shape.

    Attributes:
        shape: (C, H, W) of the images.
        pattern: int16 (C, H, W), in steps of 1/255.
        strength: Standard deviation of the noise, relative to the range of a pixel.
    """

    shape: Shape
    pattern: Tensor
    strength: float = 0.1

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, strength: float = 0.1) -> Self:
        """Draw the pattern by the secret."""
        normal = Choices(secret, "noise/pattern").normal(shape[0] * shape[1] * shape[2])
        steps = np.rint(normal * (strength * 255.0)).astype(np.int16).reshape(shape)
        return cls(shape=shape, pattern=torch.from_numpy(steps), strength=strength)

    @classmethod
    def literal(cls, shape: Shape, *, strength: float = 0.1) -> Self:
        """Return one fixed, public pattern, as the paper's experiments used one."""
        return cls.derived(_PUBLIC, shape, strength=strength)

    def apply(self, images: Tensor) -> Tensor:
        """Add the pattern to uint8 images of shape (N, C, H, W)."""
        return (images.to(torch.int16) + self.pattern.to(images.device)).clamp_(0, 255).to(torch.uint8)
