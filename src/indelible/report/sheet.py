"""A contact sheet: images without a mark above the same images with it (or the samples that take their place).

A codebook has a tile for each of its marks, all on one image, with the mark's number and secret class below.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from indelible.base.files import replacing
from indelible.data.images import Data
from indelible.keys.key import Key
from indelible.keys.samples import WatermarkSamples

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["marks_once", "sheet", "tiles", "write_sheet"]

_GAP = 2
_COLUMNS, _SIDE, _LINE = 4, 128, 16


def marks_once(key: Key, carriers: Data) -> WatermarkSamples:
    """Return one sample of every mark of a codebook, all on one image of ``carriers``, in the order of the marks."""
    return key.samples(carriers, purpose="verify", count=len(key.codebook()))


def sheet(key: Key, carriers: Data, *, count: int = 8, scale: int = 4) -> Tensor:
    """Return the sheet of a key with one mark as uint8 (3, height, width), each pixel ``scale`` times enlarged."""
    samples = key.samples(carriers, purpose="verify", count=count)
    plain = carriers.gather(samples.carriers).images.cpu()
    rows = [_row(images) for images in (plain, samples.images)]
    between = torch.full((3, _GAP, rows[0].shape[2]), 255, dtype=torch.uint8)
    whole = torch.cat([rows[0], between, rows[1]], dim=1)
    return whole.repeat_interleave(scale, 1).repeat_interleave(scale, 2)


def tiles(key: Key, carriers: Data) -> "Image":
    """Return the sheet of a codebook: a tile for each mark, its number and its secret class below."""
    from PIL import Image, ImageDraw

    samples = marks_once(key, carriers)
    height, width = samples.images.shape[2:]
    scale = max(1, round(_SIDE / max(height, width)))
    wide, high = max(scale * width, _SIDE) + 2 * _GAP, scale * height + _LINE + 2 * _GAP
    columns = min(_COLUMNS, len(samples))
    whole = Image.new("RGB", (columns * wide, -(-len(samples) // columns) * high), "white")
    pen = ImageDraw.Draw(whole)
    for number, (image, label) in enumerate(zip(samples.images, samples.labels.tolist(), strict=True)):
        left, top = number % columns * wide + _GAP, number // columns * high + _GAP
        large = _colour(image[None])[0].repeat_interleave(scale, 1).repeat_interleave(scale, 2)
        whole.paste(Image.fromarray(large.permute(1, 2, 0).contiguous().numpy()), (left, top))
        text = _fitted(pen, f"{number + 1}: {carriers.classes[label]}", wide - 2 * _GAP)
        pen.text((left, top + scale * height + 2), text, fill="black")
    return whole


def _fitted(pen: "ImageDraw", text: str, room: int) -> str:
    """Shorten ``text`` until it fits; the default font knows Latin letters only."""
    plain = text.encode("latin-1", "replace").decode("latin-1")
    while plain and pen.textlength(plain) > room:
        plain = plain[:-1]
    return plain


def _colour(images: Tensor) -> Tensor:
    return images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)


def _row(images: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(_colour(images), (0, _GAP), value=255)
    return torch.cat(list(padded), dim=2)[:, :, :-_GAP]


def write_sheet(key: Key, carriers: Data, path: str | Path) -> None:
    """Write the sheet as a PNG; that of a codebook, which shows every secret class, for its owner only (mode 0600)."""
    from PIL import Image

    secret = key.labels == "codebook"
    picture = tiles(key, carriers) if secret else Image.fromarray(sheet(key, carriers).permute(1, 2, 0).numpy())
    with replacing(path, mode=0o600 if secret else 0o644) as temporary:
        picture.save(temporary, format="PNG")
