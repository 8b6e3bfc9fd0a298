"""The content mark: a short text drawn on the image (Zhang et al., 2018; the paper's Section 4.1, "Content").

| choice | the paper | derived from the secret |
|---|---|---|
| text | ``TEST`` | four of 34 letters; fewer where four do not fit |
| place | rows 21-27, columns 3-28 of 32 x 32 | anywhere it fits, two pixels off the edge if it can be |
| colour | white | a corner of the colour cube other than black |
| size | 1 (7 pixels high on 32 x 32, in proportion on larger images) | a setting |
| transparency | 0 (opaque) | a setting |

Black is not drawn: on pictures with a dark ground it would be no mark at all. The alphabet is a 5 x 7 dot matrix;
``TEST`` comes out as the mark in the paper's experiments: 55 dots, 7 high, 26 columns wide, no anti-aliasing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.images import Shape
from indelible.keys.derive import Choices
from indelible.keys.marks import MARKS, Mark, Stamps

GLYPH_HEIGHT, GLYPH_WIDTH, GAP = 7, 5, 2

# Rows from top to bottom, five bits each, the leftmost dot first.
_ROWS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "B": "11110 10001 10001 11110 10001 10001 11110",
    "C": "01111 10000 10000 10000 10000 10000 01111",
    "D": "11110 10001 10001 10001 10001 10001 11110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "F": "11111 10000 10000 11110 10000 10000 10000",
    "G": "01111 10000 10000 10011 10001 10001 01111",
    "H": "10001 10001 10001 11111 10001 10001 10001",
    "I": "11111 00100 00100 00100 00100 00100 11111",
    "J": "00111 00010 00010 00010 00010 10010 01100",
    "K": "10001 10010 10100 11000 10100 10010 10001",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "M": "10001 11011 10101 10101 10001 10001 10001",
    "N": "10001 11001 11001 10101 10011 10011 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "P": "11110 10001 10001 11110 10000 10000 10000",
    "Q": "01110 10001 10001 10001 10101 10010 01101",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    "V": "10001 10001 10001 10001 01010 01010 00100",
    "W": "10001 10001 10001 10101 10101 11011 10001",
    "X": "10001 01010 00100 00100 00100 01010 10001",
    "Y": "10001 10001 01010 00100 00100 00100 00100",
    "Z": "11111 00001 00010 00100 01000 10000 11111",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 00001 11110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 00100 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}

# 0 and 1 are left out: at seven dots they read as O and I.
ALPHABET = "".join(_ROWS)

_LETTERS = 4
_MARGIN = 2
_UNIT = 32  # the image height for which sizes and places are given


class TextStamps(Stamps):
    """Texts as masks and colours."""

    def __init__(self, marks: "Sequence[ContentMark]", device: torch.device) -> None:
        super().__init__(marks, device)
        self._masks = torch.stack([mark.mask() for mark in marks])[:, None].to(device)
        colours = torch.tensor([mark.colour for mark in marks], dtype=torch.float32)
        self._colours = colours.div_(255.0)[:, :, None, None].to(device)
        self._opacity = 1.0 - marks[0].transparency

    def apply(self, images: Tensor, which: Tensor, random: Tensor) -> Tensor:  # noqa: ARG002 - no families here
        """Mix each row's text into it."""
        colours = self._colours[which].to(images.dtype)
        mixed = colours if self._opacity == 1.0 else images + self._opacity * (colours - images)
        return torch.where(self._masks[which], mixed, images)


@MARKS.register(name="content", summary="a text on the image")
@dataclass(frozen=True, kw_only=True)
class ContentMark(Mark):
    """A text on images of one shape (C, H, W): upper edge ``top``, left edge ``left``, 0..255 for each channel.

    ``size`` 1 is seven pixels high on 32 x 32; ``transparency`` 0 is opaque, towards 1 the image shows through.
    """

    shape: Shape
    text: str
    top: int
    left: int
    colour: tuple[int, ...]
    size: float = 1.0
    transparency: float = 0.0
    stamps = TextStamps

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, *, size: float = 1.0, transparency: float = 0.0, **_: Any) -> Self:
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
    def literal(cls, shape: Shape, *, size: float = 1.0, transparency: float = 0.0, **_: Any) -> Self:
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
    # In proportion to the image, but never below one pixel a dot: letters would lose strokes.
    dot = max(1.0, min(shape[1:]) / _UNIT)
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


def text_width(letters: int) -> int:
    """Return the width in dots of a text of ``letters`` letters."""
    return letters * GLYPH_WIDTH + (letters - 1) * GAP


def text_mask(text: str) -> Tensor:
    """Draw ``text`` as a bool mask of shape (7, width), true where a dot is."""
    unknown = set(text) - set(ALPHABET)
    if unknown or not text:
        raise InputError(f"a mark's text may hold the letters {ALPHABET}, got {sorted(unknown) or 'no letter'}.")
    mask = torch.zeros(GLYPH_HEIGHT, text_width(len(text)), dtype=torch.bool)
    for place, letter in enumerate(text):
        rows = [[dot == "1" for dot in row] for row in _ROWS[letter].split()]
        left = place * (GLYPH_WIDTH + GAP)
        mask[:, left : left + GLYPH_WIDTH] = torch.tensor(rows)
    return mask
