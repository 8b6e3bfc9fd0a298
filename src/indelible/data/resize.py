"""Bring images to another shape: size by antialiased bilinear interpolation, channels by copying or averaging."""

import torch
from torch import Tensor
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.images import Shape

__all__ = ["fit_shape"]

# ITU-R BT.601 luma, as in most image libraries
_LUMA = (0.299, 0.587, 0.114)


def fit_shape(images: Tensor, shape: Shape) -> Tensor:
    """Return uint8 images (N, C, H, W) as uint8 (N, *shape); unchanged when they fit already.

    Args:
        images: uint8 (N, C, H, W).
        shape: (C, H, W) wanted; channels may go from 1 to 3 (copied) or from 3 to 1 (luma).
    """
    channels, height, width = shape
    if tuple(images.shape[1:]) == shape:
        return images
    floats = images.float()
    if images.shape[-2:] != (height, width):
        floats = F.interpolate(floats, size=(height, width), mode="bilinear", antialias=True, align_corners=False)
    if images.shape[1] == 1 and channels > 1:
        floats = floats.expand(-1, channels, -1, -1)
    elif images.shape[1] == 3 and channels == 1:
        floats = (floats * torch.tensor(_LUMA, device=images.device)[:, None, None]).sum(1, keepdim=True)
    elif images.shape[1] != channels:
        raise InputError(f"images with {images.shape[1]} channels cannot be turned into {channels}. Use 1 or 3.")
    return floats.round().clamp(0, 255).to(torch.uint8)
