"""Kinds of marks: what a mark does, and the registry that names them.

A new kind is one class, in this package or outside of it::

    @MARKS.register(name="stripes")
    @dataclass(frozen=True, kw_only=True)
    class Stripes(Mark):
        shape: Shape
        ...

It has two methods: ``derived`` chooses everything about the mark by a secret, ``apply`` draws it on images. Then
``Key.create(kind="stripes")`` makes keys and codebooks with it. A class that the program has not imported is found by
an entry point of its name, in the group ``indelible.marks``. A key on disk never imports anything else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.registry import MethodRegistry
from indelible.data.images import Shape

Purpose = Literal["embed", "verify"]
MARKS = MethodRegistry(
    "kind of mark", group="indelible.marks", base="indelible.keys.marks:Mark", needs="apply(self, images)"
)


class Stamps:
    """Marks of one kind, ready to be put on rows of a float batch, each row with a mark of its own.

    This works for every mark that is drawn on images, pixel values rounded to 1/255; a kind can bring a faster one.
    """

    def __init__(self, marks: "Sequence[Any]", device: torch.device) -> None:
        self.marks, self.count, self.device = marks, len(marks), device

    def apply(self, images: Tensor, which: Tensor, random: Tensor) -> Tensor:  # noqa: ARG002 - for families
        """Return rows of a batch, float (n, C, H, W) in [0, 1], not normalised, with the marks ``which`` (int64, (n,)).

        ``random`` (int64, (n,), not negative) says which image of a family takes the place of a row.
        """
        pixels = images.mul(255.0).round_().to(torch.uint8)
        for number in which.unique().tolist():
            rows = which == number
            pixels[rows] = self.marks[number].apply(pixels[rows])
        return pixels.to(images.dtype) / 255.0


class Mark:
    """Base of the kinds of marks."""

    shape: Shape
    own_images: ClassVar[bool] = False
    """Whether samples are images of the mark's own, and not carriers that it is drawn on."""
    stamps: ClassVar[type[Stamps]] = Stamps

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, **settings: Any) -> Self:
        """Choose everything about the mark by the secret (:class:`indelible.keys.derive.Choices`).

        ``settings`` are the key's ``size``, ``transparency``, ``strength`` and ``pool``; a kind takes what it uses.
        """
        raise NotImplementedError

    @classmethod
    def in_codebook(cls, secret: bytes, shape: Shape, **settings: Any) -> Self:
        """Return one of many marks that a network has to tell apart."""
        return cls.derived(secret, shape, **settings)

    @classmethod
    def literal(cls, shape: Shape, **settings: Any) -> Self:  # noqa: ARG003 - for those that have one
        """Return the paper's mark, for ``scheme="paper"``."""
        raise InputError(f"the paper has no {cls.__name__}. Leave out scheme='paper'.")

    def apply(self, images: Tensor) -> Tensor:
        """Draw the mark on uint8 images (N, C, H, W)."""
        raise NotImplementedError

    def samples(self, plain: Tensor | None, count: int, purpose: Purpose) -> Tensor:  # noqa: ARG002 - for families
        """Return ``count`` uint8 samples: the mark on as many carriers ``plain``, or images of its own."""
        assert plain is not None and len(plain) == count, "marks are drawn on carriers"  # noqa: S101, PT018
        return self.apply(plain)

    def capacity(self, purpose: Purpose) -> int | None:  # noqa: ARG002 - for families
        """Return how many images of its own there are for ``purpose``; None for endless ones, or for none."""
        return None


class PlainMark(Mark):
    """No mark: leaves images as they are."""

    def apply(self, images: Tensor) -> Tensor:
        """Return uint8 ``images`` (N, C, H, W), unchanged."""
        return images


def seeded_mark(seed: bytes, settings: Mapping[str, Any], pool: Tensor | None = None) -> Mark:
    """Return the mark of a codebook that a seed decides, by a key's settings: what an auditor computes."""
    numbers = {name: settings[name] for name in ("size", "transparency", "strength")}
    made: Mark = MARKS[settings["kind"]].build.in_codebook(seed, tuple(settings["shape"]), pool=pool, **numbers)
    return made
