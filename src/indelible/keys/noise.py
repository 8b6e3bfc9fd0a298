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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from indelible.data.images import Shape
from indelible.keys.derive import SECRET_BYTES, Choices
from indelible.keys.marks import MARKS, Mark, Stamps

# The literal pattern must be the same for everybody, so its "secret" is public: thirty-two zero bytes.
_PUBLIC = bytes(SECRET_BYTES)


class PatternStamps(Stamps):
    """Patterns to be added."""

    def __init__(self, marks: "Sequence[NoiseMark]", device: torch.device) -> None:
        super().__init__(marks, device)
        self._patterns = torch.stack([mark.pattern for mark in marks]).to(device, torch.float32).div_(255.0)

    def apply(self, images: Tensor, which: Tensor, random: Tensor) -> Tensor:  # noqa: ARG002 - no families here
        """Add each row's pattern to it."""
        return (images + self._patterns[which].to(images.dtype)).clamp(0.0, 1.0)


@MARKS.register(name="noise", summary="a pattern on the image")
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseMark(Mark):
    """A fixed pattern, int16 (C, H, W) in steps of 1/255; squares of ``grain`` x ``grain`` pixels share a number."""

    shape: Shape
    pattern: Tensor
    strength: float = 0.1
    grain: int = 1
    stamps = PatternStamps

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, strength: float = 0.1, grain: int = 1, **_: Any) -> Self:
        """Draw the pattern by the secret."""
        channels, height, width = shape
        coarse = (channels, -(-height // grain), -(-width // grain))
        normal = Choices(secret, "noise/pattern").normal(math.prod(coarse))
        steps = np.rint(normal * (strength * 255.0)).astype(np.int16).reshape(coarse)
        whole = steps.repeat(grain, axis=1).repeat(grain, axis=2)[:, :height, :width]
        return cls(shape=shape, pattern=torch.from_numpy(whole.copy()), strength=strength, grain=grain)

    @classmethod
    def in_codebook(cls, secret: bytes, shape: Shape, **settings: Any) -> Self:
        """Draw a coarser pattern: its grain is an eighth of the shorter side, at least one pixel."""
        return cls.derived(secret, shape, grain=max(1, min(shape[1:]) // 8), **settings)

    @classmethod
    def literal(cls, shape: Shape, *, strength: float = 0.1, **_: Any) -> Self:
        """Return one fixed, public pattern, as the paper's experiments used one."""
        return cls.derived(_PUBLIC, shape, strength=strength)

    def apply(self, images: Tensor) -> Tensor:
        """Add the pattern to uint8 images of shape (N, C, H, W)."""
        return (images.to(torch.int16) + self.pattern.to(images.device)).clamp_(0, 255).to(torch.uint8)
