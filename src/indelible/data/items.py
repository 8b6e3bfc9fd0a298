"""Items of a user's torch data set, checked one by one: a wrong one is refused by its index."""

from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from indelible.base.errors import InputError
from indelible.data.convert import as_uint8
from indelible.data.images import Shape

__all__ = ["DatasetReader", "image_of", "label_of"]


class DatasetReader:
    """Reads images of a map-style data set of ``(image, label)``.

    Args:
        dataset: The user's data set.
        name: How errors call it.
    """

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
        self._shape: Shape | None = None
        self._shape = self.shape

    @property
    def shape(self) -> Shape:
        """(C, H, W) of every image: that of the first."""
        if self._shape is not None:
            return self._shape
        channels, height, width = self.item(0)[0].shape
        return channels, height, width

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        return self.item(index)[0]

    def item(self, index: int) -> tuple[Tensor, int]:
        """Return (uint8 (C, H, W), label) of item ``index``."""
        try:
            item = self.dataset[index]
        except Exception as error:
            raise InputError(f"item {index} of {self.name!r} cannot be read: {error!r}.") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"item {index} of {self.name!r} must be a pair (image, label), but is a {type(item).__name__}"
                f"{f' of {len(item)}' if isinstance(item, tuple | list) else ''}."
            )
        image = image_of(item[0], f"{self.name}[{index}]")
        if self._shape is not None and tuple(image.shape) != self._shape:
            raise InputError(
                f"item {index} of {self.name!r} has the shape {tuple(image.shape)}, but item 0 has {self._shape}. "
                "Bring all images to one size and one mode (resize, crop, convert('RGB')) first."
            )
        return image, label_of(item[1], f"{self.name}[{index}]")


def image_of(value: Any, name: str) -> Tensor:
    """Return one image as uint8 (C, H, W); ``name`` is what errors call it."""
    if not isinstance(value, Tensor | np.ndarray):
        from PIL import Image

        if not isinstance(value, Image.Image):
            raise InputError(
                f"the image {name} must be a PIL image, a tensor or an array, but is a {type(value).__name__}."
            )
        value = np.array(value if value.mode in {"L", "RGB"} else value.convert("RGB"))
        value = value[None] if value.ndim == 2 else value.transpose(2, 0, 1)
    if value.ndim not in {2, 3}:
        raise InputError(f"the image {name} must have the shape (C, H, W), but came as {tuple(value.shape)}.")
    return as_uint8(value[None], name)[0]


def label_of(value: Any, name: str) -> int:
    """Return one label as a whole number."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(
            f"the label of {name} must be a whole number, but is {value!r:.80}. Pass class indices, not one-hot rows."
        )
    return int(value)
