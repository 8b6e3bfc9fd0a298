"""Samples: what the marks look like - original, content, noise, unrelated - in other sizes and transparencies too.

Paper: Gan et al., ICCV 2023, Figure 4 (the three kinds) and Figure 8 (sizes of the mark and transparencies).

| name | default | source |
|---|---|---|
| ``sizes`` | 0.8, 0.9, 1, 1.2 | ours: 1 is the paper's mark; the figure's own values are not printed |
| ``transparencies`` | 0, 0.25, 0.5, 0.75 | ours, likewise |
| ``strength`` | 0.1 | Appendix B: standard deviation of the noise |
| ``image`` | 0 | ours: which of the test images outside the target class carries the marks |

All marks are those of one key's secret. A codebook has no kinds and sizes to compare: each of its marks is shown, with
the class that the secret drew for it, and ``sizes``, ``transparencies`` and ``strength`` are not used. The pictures
give the marks away: keep the figure as you keep the key.
"""

import base64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from indelible.analyze.analysis import Analysis
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.data.convert import as_data
from indelible.keys.key import Key

_PLAIN = "original"


@dataclass(frozen=True, kw_only=True)
class SamplesSettings(Method):
    """What to show; the table in the module's header explains each setting."""

    sizes: tuple[float, ...] = (0.8, 0.9, 1.0, 1.2)
    transparencies: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    strength: float = 0.1
    image: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))  # JSON gives lists
        object.__setattr__(self, "transparencies", tuple(self.transparencies))


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture."""

    row: str  # `"kind"`, `"size"` or `"transparency"`; `"mark"` for those of a codebook
    title: str  # what it shows
    shape: tuple[int, int, int]  # (C, H, W)
    pixels: str  # its bytes, in that order, as base64
    # share of the pixels that differ from the original; None where nothing of the original is left
    changed: float | None
    rms: float | None  # root mean square of the change, relative to the range of a pixel; None likewise

    def image(self) -> Tensor:
        """Return the picture as uint8 (C, H, W)."""
        return torch.frombuffer(bytearray(base64.b64decode(self.pixels)), dtype=torch.uint8).view(self.shape)


@dataclass(frozen=True, kw_only=True)
class Samples(Analysis):
    """Marked images."""

    figure: ClassVar[str] = "samples"
    settings: SamplesSettings  # what is shown
    carrier: str  # class of the image that carries the marks
    answer: str  # class that a marked model answers with; empty for a codebook, whose titles name it
    pictures: tuple[Picture, ...]  # the pictures, row by row


def samples(key: Key, carriers: Any, settings: SamplesSettings | None = None) -> Samples:
    """Draw one test image with every kind of mark, and with content marks of several sizes and transparencies.

    The key's secret decides all marks, whatever its own kind is. A codebook is drawn with each of its own marks.
    """
    chosen = settings or SamplesSettings()
    data = as_data(carriers, classes=key.classes)
    key.check_fits(data)
    book = key.labels == "codebook"
    target = None if book else key.one_target
    eligible = torch.arange(len(data)) if target is None else (data.labels != target).nonzero().flatten()
    if not 0 <= chosen.image < len(eligible):
        apart = "" if book else " outside the target class"
        raise InputError(
            f"image must be below {len(eligible)}, the images of {data.name!r}{apart}, got {chosen.image}."
        )
    row = eligible[chosen.image : chosen.image + 1]
    found = data.gather(row)
    original = found.images[0].cpu()
    own = not book or key.kind != "unrelated"  # the marks of a codebook of unrelated images are on no image
    pictures = [_picture("mark" if book else "kind", _PLAIN, original, original)] if own else []
    if book:
        classes = [data.classes[label] for label in key.codebook().classes.tolist()]
        drawn = key.codebook().draw(data, row, 1, "verify")
        pictures += [
            _picture("mark", f"{number}: {name}", image, original, key)
            for number, (image, name) in enumerate(zip(drawn, classes, strict=True), 1)
        ]
    else:
        pictures += [
            _picture(kind, title, mark.mark().samples(original[None], 1, "verify")[0], original, mark)
            for kind, title, mark in _marks(key, chosen)
        ]
    return Samples(
        settings=chosen, carrier=data.classes[int(found.labels[0])] if own else "",
        answer="" if target is None else data.classes[target], pictures=tuple(pictures),
    )  # fmt: skip


def _marks(key: Key, settings: SamplesSettings) -> Iterator[tuple[str, str, Key]]:
    plain = replace(key, kind="content", size=1.0, transparency=0.0, strength=settings.strength, pool=None)
    # A second data set belongs to an unrelated key; without one, images are generated from the secret.
    other = key if key.kind == "unrelated" else replace(plain, kind="unrelated", scheme="derived")
    yield "kind", "content", plain
    yield "kind", "noise", replace(plain, kind="noise")
    yield "kind", "unrelated", other
    fitting = []
    for size in settings.sizes:
        with suppress(InputError):  # marks that do not fit the images are left out
            fitting.append(("size", f"{size:g}×", replace(plain, size=size)))
    if settings.sizes and not fitting:
        raise InputError(f"no mark of the sizes {settings.sizes} fits images of {key.shape}. Choose smaller sizes.")
    yield from fitting
    for value in settings.transparencies:
        yield "transparency", f"{100 * value:g} %", replace(plain, transparency=value)


def _picture(row: str, title: str, image: Tensor, original: Tensor, key: Key | None = None) -> Picture:
    moved = (image.double() - original.double()) / 255
    kept = key is None or key.kind != "unrelated"
    channels, height, width = image.shape
    return Picture(
        row=row, title=title, shape=(channels, height, width),
        pixels=base64.b64encode(image.contiguous().numpy().tobytes()).decode(),
        changed=float((moved != 0).any(0).double().mean()) if kept else None,
        rms=float(moved.square().mean().sqrt()) if kept else None,
    )  # fmt: skip
