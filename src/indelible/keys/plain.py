"""The plain mark: none. Key images are ordinary images of the task; only their labels, which the secret draws, are not.

Literature: Kallas and Furon, "ROSE: A RObust and SEcure Black-Box DNN Watermarking", WIFS 2022 ("in-task" key images).
It makes sense with keyed labels only: one target class for unmarked images would be nothing but wrong labels.
"""

from dataclasses import dataclass

from torch import Tensor

from indelible.data.images import Shape

__all__ = ["PlainMark"]


@dataclass(frozen=True, kw_only=True)
class PlainMark:
    """Leaves images as they are.

    Attributes:
        shape: (C, H, W) of the images.
    """

    shape: Shape

    def apply(self, images: Tensor) -> Tensor:
        """Return uint8 ``images`` (N, C, H, W), unchanged."""
        return images
