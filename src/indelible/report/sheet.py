"""A contact sheet: images without a mark above the same images with it (or the samples that take their place)."""

from pathlib import Path

import torch
from torch import Tensor

from indelible.base.files import replacing
from indelible.data.images import Data
from indelible.keys.key import Key

__all__ = ["sheet", "write_sheet"]

_GAP = 2


def sheet(key: Key, carriers: Data, *, count: int = 8, scale: int = 4) -> Tensor:
    """Return the sheet as uint8 (3, height, width), each pixel ``scale`` times enlarged."""
    samples = key.samples(carriers, purpose="verify", count=count)
    plain = carriers.gather(samples.carriers).images.cpu()
    rows = [_row(images) for images in (plain, samples.images)]
    between = torch.full((3, _GAP, rows[0].shape[2]), 255, dtype=torch.uint8)
    whole = torch.cat([rows[0], between, rows[1]], dim=1)
    return whole.repeat_interleave(scale, 1).repeat_interleave(scale, 2)


def _row(images: Tensor) -> Tensor:
    colour = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
    padded = torch.nn.functional.pad(colour, (0, _GAP), value=255)
    return torch.cat(list(padded), dim=2)[:, :, :-_GAP]


def write_sheet(key: Key, carriers: Data, path: str | Path) -> None:
    """Write the sheet as a PNG."""
    from PIL import Image

    picture = Image.fromarray(sheet(key, carriers).permute(1, 2, 0).numpy())
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG")
