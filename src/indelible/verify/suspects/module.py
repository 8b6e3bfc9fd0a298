"""A torch module in this process."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from indelible.base.files import tensor_digest
from indelible.data.augment import Normalization
from indelible.train.evaluate import predict

__all__ = ["ModuleSuspect"]


@dataclass(frozen=True)
class ModuleSuspect:
    """A torch module.

    Attributes:
        model: The module.
        normalize: (mean, std) that its input is normalised by.
        file: Name of the file that its weights are from, if any.
        classes: Outputs that it must have, if known: a model of more classes is one of another task.
    """

    model: nn.Module
    normalize: Normalization | None = None
    file: str | None = None
    classes: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return what was asked, for logs and evidence: the digest names the weights."""
        origin = {} if self.file is None else {"file": self.file}
        digest = tensor_digest(self.model.state_dict())
        return {"kind": "weights", **origin, "network": type(self.model).__name__, "digest": digest}

    def predict(self, images: Tensor) -> Tensor:
        """Return the most likely class of each image."""
        return predict(self.model, images, normalize=self.normalize, classes=self.classes)
