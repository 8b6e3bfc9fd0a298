"""A torch module in this process."""

from dataclasses import dataclass

from torch import Tensor, nn

from indelible.data.augment import Normalization
from indelible.train.evaluate import predict

__all__ = ["ModuleSuspect"]


@dataclass(frozen=True)
class ModuleSuspect:
    """A torch module.

    Attributes:
        model: The module.
        normalize: (mean, std) that its input is normalised by.
    """

    model: nn.Module
    normalize: Normalization | None = None

    def predict(self, images: Tensor) -> Tensor:
        """Return the most likely class of each image."""
        return predict(self.model, images, normalize=self.normalize)
