"""Anything a user already has becomes :class:`~indelible.data.images.ImageData` (or a stream of it)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from indelible.base.errors import InputError
from indelible.data.images import Data, ImageData

__all__ = ["as_data", "as_uint8"]


def as_uint8(images: Any, name: str = "data") -> Tensor:
    """Turn images into uint8 of shape (N, C, H, W).

    Args:
        images: uint8, or float in [0, 1] (rounded to the nearest of 256 levels); tensor or array; (N, H, W) counts as
            one channel; arrays of shape (N, H, W, C) with 1 or 3 channels last are turned.
        name: How to call the set in an error.
    """
    tensor = torch.as_tensor(np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images)
    if tensor.ndim == 3:
        tensor = tensor[:, None]
    if tensor.ndim != 4:
        raise InputError(
            f"images of {name!r} must have the shape (N, C, H, W), but came as {tuple(tensor.shape)}. Add the missing "
            "axis."
        )
    if tensor.shape[1] not in {1, 3} and tensor.shape[-1] in {1, 3}:
        tensor = tensor.permute(0, 3, 1, 2)
    if tensor.dtype == torch.uint8:
        return tensor.contiguous()
    if not tensor.is_floating_point():
        raise InputError(
            f"images of {name!r} must be uint8 or float in [0, 1], but are {str(tensor.dtype).removeprefix('torch.')}."
        )
    if tensor.numel() and not bool(((tensor >= 0) & (tensor <= 1)).all()):
        low, high = float(tensor.min()), float(tensor.max())
        raise InputError(
            f"float images of {name!r} must lie in [0, 1], but reach from {low:.3g} to {high:.3g}. Undo the "
            "normalisation and pass it as `normalize=(mean, std)` instead, or divide by 255."
        )
    return tensor.mul(255.0).round().to(torch.uint8).contiguous()


def as_data(source: Any, *, classes: Sequence[str] | int | None = None, name: str | None = None) -> Data:
    """Return ``source`` as labelled images.

    Args:
        source: Our own data object; a pair ``(images, labels)`` of tensors, arrays or lists; a
            ``torch.utils.data.Dataset`` of ``(image, label)``; the path of an image folder or of an ``.npz`` file.
        classes: Class names or their number; by default the highest label decides.
        name: What to call the set.
    """
    if isinstance(source, Data):
        return source
    if isinstance(source, str | Path):
        return _from_path(Path(source), classes)
    if isinstance(source, tuple | list) and len(source) == 2:
        return _from_pair(source[0], source[1], classes, name or "data")
    if isinstance(source, Dataset):
        from indelible.data.stream import from_dataset

        return from_dataset(source, classes=classes, name=name or type(source).__name__)
    raise InputError(
        f"expected a data set - a torch Dataset, a pair (images, labels), a folder of images or an .npz file - "
        f"but came {type(source).__name__}."
    )


def class_names(classes: Sequence[str] | int | None, labels: Tensor) -> tuple[str, ...]:
    """Return class names, counted from the labels when nothing is known."""
    if classes is None:
        classes = int(labels.max()) + 1 if labels.numel() else 0
    return tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)


def _from_pair(images: Any, labels: Any, classes: Sequence[str] | int | None, name: str) -> ImageData:
    pixels = as_uint8(images, name)
    if not isinstance(labels, Tensor):
        labels = _numbers(labels, name)
    numbers = torch.as_tensor(labels)
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(
            f"labels of {name!r} must be whole numbers, but are {str(numbers.dtype).removeprefix('torch.')}. "
            "Pass class indices, not one-hot rows or probabilities."
        )
    numbers = numbers.to(torch.int64)
    if len(pixels) == 0:
        raise InputError(f"the data set {name!r} is empty. Give at least two images.")
    return ImageData(pixels, numbers, class_names(classes, numbers), name)


def _numbers(labels: Any, name: str) -> npt.NDArray[Any]:
    """Return labels as an array of numbers; names of classes are refused, with the line that numbers them."""
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError(
            f"labels of {name!r} must be whole numbers, one for each image, got rows of lengths that differ."
        ) from error
    if array.dtype.kind not in "biuf":
        kind = "text" if array.dtype.kind in "US" else "objects"
        shown = f", {str(array.flat[0])!r:.40} first" if array.size else ""
        raise InputError(
            f"labels of {name!r} must be whole numbers, one for each image, got {kind}{shown}. "
            "Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True)."
        )
    return array


def _from_path(path: Path, classes: Sequence[str] | int | None) -> Data:
    if path.suffix == ".npz":
        from indelible.data.sources.npz import read_npz

        return read_npz(path, classes=classes)
    if path.is_dir():
        from indelible.data.sources.folder import read_folder

        names = None if classes is None or isinstance(classes, int) else tuple(classes)
        return read_folder(path, classes=names)
    raise InputError(
        f"{path} is neither a folder of images nor an .npz file. Named data sets are listed by `indelible data list`."
    )
