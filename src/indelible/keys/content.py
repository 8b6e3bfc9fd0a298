"""The content mark: a short text drawn on the image (Zhang et al., 2018; the paper's Section 4.1, "Content").

| choice | the paper | derived from the secret |
|---|---|---|
| text | ``TEST`` | four of 34 letters; fewer where four do not fit |
| place | rows 21-27, columns 3-28 of 32 x 32 | anywhere it fits, two pixels off the edge if it can be |
| colour | white | a corner of the colour cube other than black |
| size | 1 (7 dots high on 32 x 32) | a setting |
| transparency | 0 (opaque) | a setting |

Black is not drawn: on pictures with a dark ground it would be no mark at all.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.images import Shape
from indelible.keys.derive import Choices
from indelible.keys.glyphs import ALPHABET, GLYPH_HEIGHT, text_mask, text_width

__all__ = ["ContentMark"]

_LETTERS = 4
_MARGIN = 2
_UNIT = 32  # the image height for which sizes and places are given


@dataclass(frozen=True, kw_only=True)
class ContentMark:
    """A text on images of one shape.

    Attributes:
        shape: (C, H, W) of the images.
        text: What is written.
        top: Row of the text's upper edge.
        left: Column of its left edge.
        colour: One value 0..255 for each channel.
        size: Relative size; 1 is seven pixels high on 32 x 32.
        transparency: 0 is opaque, towards 1 the image shows through.
    """

    shape: Shape
    text: str
    top: int
    left: int
    colour: tuple[int, ...]
    size: float = 1.0
    transparency: float = 0.0

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, size: float = 1.0, transparency: float = 0.0) -> Self:
        """Choose text, place and colour by the secret."""
        letters = Choices(secret, "content/text")
        text = "".join(ALPHABET[letters.below(len(ALPHABET))] for _ in range(_room(shape)))
        place = Choices(secret, "content/place")
        height, width = _extent(shape, size, len(text))
        top, left = (_place(place, room) for room in (shape[1] - height, shape[2] - width))
        corner = Choices(secret, "content/colour").below(2 ** shape[0] - 1) + 1
        colour = tuple(255 * (corner >> channel & 1) for channel in range(shape[0]))
        return cls(shape=shape, text=text, top=top, left=left, colour=colour, size=size, transparency=transparency)

    @classmethod
    def literal(cls, shape: Shape, *, size: float = 1.0, transparency: float = 0.0) -> Self:
        """Return the paper's mark: white ``TEST`` at its place, in proportion on other image sizes."""
        height, width = _extent(shape, size, _LETTERS)
        top = min(round(21 * shape[1] / _UNIT), shape[1] - height)
        left = min(round(3 * shape[2] / _UNIT), shape[2] - width)
        return cls(
            shape=shape, text="TEST", top=top, left=left, colour=(255,) * shape[0], size=size, transparency=transparency
        )

    def mask(self) -> Tensor:
        """Return where the text is: bool (H, W)."""
        dots = text_mask(self.text)
        height, width = _extent(self.shape, self.size, len(self.text))
        drawn = F.interpolate(dots[None, None].float(), size=(height, width), mode="nearest")[0, 0] > 0.5
        mask = torch.zeros(self.shape[1:], dtype=torch.bool)
        mask[self.top : self.top + height, self.left : self.left + width] = drawn
        return mask

    def apply(self, images: Tensor) -> Tensor:
        """Draw the text on uint8 images of shape (N, C, H, W)."""
        mask = self.mask().to(images.device)
        colour = torch.tensor(self.colour, device=images.device, dtype=torch.float32)[:, None, None]
        mixed = images.float().mul_(self.transparency).add_(colour * (1.0 - self.transparency))
        return torch.where(mask, mixed.round_().to(torch.uint8), images)


def _room(shape: Shape) -> int:
    """Return how many letters fit beside each other at one pixel a dot: four, or as many as the width has room for."""
    return max((count for count in range(1, _LETTERS + 1) if text_width(count) <= shape[2]), default=1)


def _extent(shape: Shape, size: float, letters: int) -> tuple[int, int]:
    """Return (height, width) in pixels of a text of ``letters`` letters on images of ``shape``."""
    dot = max(1, round(min(shape[1:]) / _UNIT))
    # One dot is a whole number of pixels, about a 32nd of the image: the largest that fits, at least one pixel.
    while dot > 1 and (GLYPH_HEIGHT * dot > shape[1] or text_width(letters) * dot > shape[2]):
        dot -= 1
    height, width = max(1, round(GLYPH_HEIGHT * size * dot)), max(1, round(text_width(letters) * size * dot))
    if height > shape[1] or width > shape[2]:
        raise InputError(
            f"a content mark of size {size:g} takes {height} x {width} pixels, and images of shape {shape} (channels, "
            f"height, width) have {shape[1]} x {shape[2]}. Choose a smaller size; size 1 fits from 8 x 8 pixels up."
        )
    return height, width


def _place(choices: Choices, room: int) -> int:
    margin = min(_MARGIN, room // 2)
    return margin + choices.below(room - 2 * margin + 1)
