"""A 5 x 7 dot-matrix alphabet, drawn for this package, and text as a mask of dots.

``TEST`` comes out as the mark in the paper's experiments: 55 dots, letters 7 high, 26 columns wide, no anti-aliasing.
"""

import torch
from torch import Tensor

from indelible.base.errors import InputError

__all__ = ["ALPHABET", "GLYPH_HEIGHT", "text_mask", "text_width"]

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


def text_width(letters: int) -> int:
    """Return the width in dots of a text of ``letters`` letters."""
    return letters * GLYPH_WIDTH + (letters - 1) * GAP


def text_mask(text: str) -> Tensor:
    """Draw ``text`` as a bool mask of shape (7, width), true where a dot is."""
    unknown = set(text) - set(ALPHABET)
    if unknown or not text:
        raise InputError(f"a mark's text takes the letters {ALPHABET}, but has {sorted(unknown) or 'no letter'}.")
    mask = torch.zeros(GLYPH_HEIGHT, text_width(len(text)), dtype=torch.bool)
    for place, letter in enumerate(text):
        rows = [[dot == "1" for dot in row] for row in _ROWS[letter].split()]
        left = place * (GLYPH_WIDTH + GAP)
        mask[:, left : left + GLYPH_WIDTH] = torch.tensor(rows)
    return mask
