"""A file of weights plus the architecture they belong to; :mod:`indelible.base.weights` says how a file is read."""

from pathlib import Path

from torch import nn

from indelible.base.weights import PICKLED, read_weights
from indelible.data.augment import Normalization
from indelible.train.run import load_weights
from indelible.verify.suspects.module import ModuleSuspect

__all__ = ["PICKLED", "read_weights", "weights_suspect"]


def weights_suspect(path: str | Path, model: nn.Module, *, normalize: Normalization | None = None) -> ModuleSuspect:
    """Load a file of weights into a freshly built network.

    Args:
        path: ``.safetensors``, ``.pt`` or ``.pth``.
        model: The architecture, for example from :func:`indelible.build_model`.
        normalize: (mean, std) that its input is normalised by.

    Raises:
        DamagedFileError: The file cannot be read, or its weights do not fit the network.
    """
    place = Path(path)
    return ModuleSuspect(load_weights(model, place).eval(), normalize, place.name)
