"""Convert what a user has to :class:`~indelible.data.images.ImageData` (or a stream of it), and images to a shape.

A torch data set is read and checked item by item: a wrong one is refused by its index.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.data.images import Data, ImageData, Shape, StreamData, memory_limit

# ITU-R BT.601 luma, as in most image libraries
_LUMA = (0.299, 0.587, 0.114)


def as_uint8(images: Any, name: str = "data") -> Tensor:
    """Turn images into uint8 of shape (N, C, H, W); errors call the set ``name``.

    They are uint8, or float in [0, 1] (rounded to the nearest of 256 levels); tensor or array; (N, H, W) counts as one
    channel; arrays of shape (N, H, W, C) with 1 or 3 channels last are turned.
    """
    tensor = torch.as_tensor(np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images)
    if tensor.ndim == 3:
        tensor = tensor[:, None]
    if tensor.ndim != 4:
        raise InputError(
            f"images of {name!r} must have the shape (N, C, H, W), got {tuple(tensor.shape)}. Add the missing axis."
        )
    if tensor.shape[1] not in {1, 3} and tensor.shape[-1] in {1, 3}:
        tensor = tensor.permute(0, 3, 1, 2)
    if tensor.dtype == torch.uint8:
        return tensor.contiguous()
    if not tensor.is_floating_point():
        raise InputError(
            f"images of {name!r} must be uint8 or float in [0, 1], got {str(tensor.dtype).removeprefix('torch.')}."
        )
    if tensor.numel() and not bool(((tensor >= 0) & (tensor <= 1)).all()):
        low, high = float(tensor.min()), float(tensor.max())
        raise InputError(
            f"float images of {name!r} must lie in [0, 1], got values from {low:.3g} to {high:.3g}. Undo the "
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
        first, *more = path_parts(Path(source), classes=classes)
        if more:
            raise InputError(f"{source} holds training and test images. Read both with indelible.load.")
        return first()
    if isinstance(source, tuple | list) and len(source) == 2:
        return _from_pair(source[0], source[1], classes, name or "data")
    if isinstance(source, Dataset):
        return from_dataset(source, classes=classes, name=name or type(source).__name__)
    raise InputError(
        f"expected a data set - a torch Dataset, a pair (images, labels), a folder of images or an .npz file - "
        f"got {type(source).__name__}."
    )


def class_names(classes: Sequence[str] | int | None, labels: Tensor) -> tuple[str, ...]:
    """Return class names, counted from the labels when nothing is known."""
    if classes is None:
        classes = int(labels.max()) + 1 if labels.numel() else 0
    return tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)


def _from_pair(images: Any, labels: Any, classes: Sequence[str] | int | None, name: str) -> ImageData:
    pixels = as_uint8(images, name)
    if len(pixels) == 0:
        raise InputError(f"the data set {name!r} is empty. Give at least two images.")
    wanted = f"labels of {name!r} must be whole numbers, one for each image, got"
    try:
        array = labels if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError as error:
        raise InputError(f"{wanted} rows of lengths that differ.") from error
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        kind = "text" if array.dtype.kind in "US" else "objects"
        shown = f", {str(array.flat[0])!r:.40} first" if array.size else ""
        raise InputError(
            f"{wanted} {kind}{shown}. "
            "Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True)."
        )
    numbers = torch.as_tensor(array)
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(
            f"labels of {name!r} must be whole numbers, got {str(numbers.dtype).removeprefix('torch.')}. "
            "Pass class indices, not one-hot rows or probabilities."
        )
    numbers = numbers.to(torch.int64)
    return ImageData(pixels, numbers, class_names(classes, numbers), name)


def path_parts(path: Path, **options: Any) -> list[Callable[[], Data]]:
    """Return what reads each part of a folder of pictures or an ``.npz`` file: training and test images, or all.

    ``options`` are the ``classes`` and, of a folder, the other options of :func:`indelible.load`.
    """
    from indelible.data.sources.folder import folder_parts
    from indelible.data.sources.npz import npz_parts

    if path.is_dir():
        return folder_parts(path, **options)
    if path.suffix == ".npz":
        return npz_parts(path, options["classes"])
    raise InputError(
        f"{path} is neither a folder of images nor an .npz file. Named data sets are listed by `indelible data list`."
    )


class DatasetReader:
    """Reads images of a map-style data set of ``(image, label)``, which errors call ``name``."""

    def __init__(self, dataset: Dataset[Any], name: str) -> None:
        if isinstance(dataset, IterableDataset):
            raise InputError(
                f"{name!r} is an iterable data set, which cannot be split or shuffled by index. Collect it into a list "
                "or a map-style Dataset (with __len__ and __getitem__) first."
            )
        self.dataset, self.name = dataset, name
        try:
            self._count = len(dataset)  # type: ignore[arg-type]  # Dataset does not promise a length
        except (TypeError, NotImplementedError) as error:
            raise InputError(f"{name!r} has no length. Give it a __len__, so that it can be split.") from error
        if self._count == 0:
            raise InputError(f"the data set {name!r} is empty. Give at least two images.")
        channels, height, width = self._pair(0)[0].shape
        self.shape: Shape = (channels, height, width)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        return self.item(index)[0]

    def item(self, index: int) -> tuple[Tensor, int]:
        """Return (uint8 (C, H, W), label) of item ``index``, of the shape of the first."""
        image, label = self._pair(index)
        if tuple(image.shape) != self.shape:
            raise InputError(
                f"item {index} of {self.name!r} has the shape {tuple(image.shape)}, but item 0 has {self.shape}. "
                "Bring all images to one size and one mode (resize, crop, convert('RGB')) first."
            )
        return image, label

    def _pair(self, index: int) -> tuple[Tensor, int]:
        try:
            item = self.dataset[index]
        except Exception as error:
            raise InputError(f"item {index} of {self.name!r} cannot be read: {error!r}.") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"item {index} of {self.name!r} must be a pair (image, label), got a {type(item).__name__}"
                f"{f' of {len(item)}' if isinstance(item, tuple | list) else ''}."
            )
        return image_of(item[0], f"{self.name}[{index}]"), label_of(item[1], f"{self.name}[{index}]")


def image_of(value: Any, name: str) -> Tensor:
    """Return one image as uint8 (C, H, W); ``name`` is what errors call it."""
    if not isinstance(value, Tensor | np.ndarray):
        from PIL import Image

        if not isinstance(value, Image.Image):
            raise InputError(
                f"the image {name} must be a PIL image, a tensor or an array, got a {type(value).__name__}."
            )
        value = np.array(value if value.mode in {"L", "RGB"} else value.convert("RGB"))
        value = value[None] if value.ndim == 2 else value.transpose(2, 0, 1)
    if value.ndim not in {2, 3}:
        raise InputError(f"the image {name} must have the shape (C, H, W), got {tuple(value.shape)}.")
    return as_uint8(value[None], name)[0]


def label_of(value: Any, name: str) -> int:
    """Return one label as a whole number."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(
            f"the label of {name} must be a whole number, got {value!r:.80}. Pass class indices, not one-hot rows."
        )
    return int(value)


def from_dataset(dataset: Dataset[Any], classes: Sequence[str] | int | None = None, name: str = "data") -> Data:
    """Turn a map-style torch data set of ``(image, label)`` into labelled images.

    Items are pairs of an image (PIL, uint8 or float tensor (C, H, W), array) and a whole number. A set that is larger
    than :func:`~indelible.data.images.memory_limit` is streamed.
    """
    reader = DatasetReader(dataset, name)
    count = len(reader)
    labels = torch.empty(count, dtype=torch.int64)
    streamed = count * math.prod(reader.shape) > memory_limit()
    images = torch.empty((0 if streamed else count, *reader.shape), dtype=torch.uint8)
    with Progress(f"reading {name}", count) as bar:
        for index in range(count):
            image, labels[index] = reader.item(index)
            if not streamed:
                images[index] = image
            bar.advance()
    names = class_names(classes, labels)
    if streamed:
        return StreamData(reader=reader, rows=torch.arange(count), labels=labels, classes=names, name=name)
    return ImageData(images, labels, names, name)


def fit_shape(images: Tensor, shape: Shape) -> Tensor:
    """Return uint8 images (N, C, H, W) as uint8 (N, *shape); unchanged when they fit already.

    The size changes by antialiased bilinear interpolation; channels may go from 1 to 3 (copied) or from 3 to 1 (luma).
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
