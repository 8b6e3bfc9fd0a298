"""Description of the input that a foreign model expects.

Images are uint8 (N, C, H, W) in Indelible. A model behind a file or an address may want floats, channels last, another
size, a mean taken off. A wrong guess would look like an honest miss; so whoever asks such a model describes its input,
at least its type, and the description goes into the log and the evidence. docs/suspects.md has the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from torch import Tensor

from indelible.base.checks import check_settings, check_words
from indelible.base.errors import InputError
from indelible.base.records import JsonFields
from indelible.data.convert import fit_shape
from indelible.data.images import Shape


@dataclass(frozen=True, kw_only=True)
class Preprocessing(JsonFields):
    """The input of a foreign model; docs/suspects.md explains each setting."""

    dtype: Literal["uint8", "float16", "float32", "float64"]
    white: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    order: Literal["RGB", "BGR"] = "RGB"
    size: tuple[int, int] | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        check_words(self, "input ")
        if self.dtype == "uint8" and (self.mean or self.std or self.white not in {None, 255}):
            raise InputError("uint8 input holds pixels 0..255 as they are: white, mean and std belong to floats.")
        if self.white is not None and not 0 < self.white <= 65535:
            raise InputError(f"white is the number that a white pixel becomes, above 0, got {self.white}.")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise InputError(f"std must be positive, got {self.std}.")
        if self.size is not None and not all(0 < side <= 4096 for side in self.size):
            raise InputError(f"size is (height, width) of 1..4096 pixels, got {self.size}.")
        if self.channels not in {None, 1, 3}:
            raise InputError(f"channels must be 1 or 3, got {self.channels}.")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping; unknown settings, wrong types and a missing ``dtype`` are refused."""
        if "dtype" not in settings:
            raise InputError(
                "the input of a foreign model is described, not assumed: say at least its type, "
                "dtype=uint8 (pixels 0..255) or dtype=float32 (0..1); also white, mean, std, layout, order, size."
            )
        check_settings(cls, settings, "input setting")
        lists = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
        return cls(**{**settings, **lists})

    def shape_of(self, shape: Shape) -> tuple[int, int, int]:
        """Return the sides, without the batch axis, that images of ``shape`` (C, H, W) are sent with."""
        channels, (height, width) = self.channels or shape[0], self.size or shape[1:]
        return (height, width, channels) if self.layout == "NHWC" else (channels, height, width)

    def apply(self, images: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
        """Turn uint8 images (N, C, H, W) into what the model takes."""
        channels, height, width = images.shape[1:]
        fitted = fit_shape(images.cpu(), (self.channels or channels, *(self.size or (height, width))))
        pixels: np.ndarray[Any, np.dtype[Any]] = fitted.numpy()
        if self.order == "BGR":
            pixels = pixels[:, ::-1]
        if self.dtype != "uint8":
            pixels = pixels.astype(np.float64) * ((1.0 if self.white is None else self.white) / 255.0)
            for values, operate in ((self.mean, np.subtract), (self.std, np.divide)):
                if values is not None:
                    if len(values) not in {1, pixels.shape[1]}:
                        raise InputError(f"{len(values)} means or deviations do not fit {pixels.shape[1]} channels.")
                    pixels = operate(pixels, np.asarray(values)[:, None, None])
        if self.layout == "NHWC":
            pixels = pixels.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(pixels, dtype=self.dtype)
