"""What every family of models shares: the catalogue, the two stems, the published initialisation.

A family file builds its networks and adds one :class:`ModelInfo` for each to :data:`MODELS`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import nn

from indelible.base.registry import Registry

__all__ = ["MODELS", "MODEL_STEMS", "ModelInfo", "Shape", "Stem", "init_published"]

Stem = Literal["small", "large"]
Shape = tuple[int, int, int]

MODEL_STEMS: tuple[Stem, Stem] = ("small", "large")


class Builder(Protocol):
    """Builds one network for ``classes`` classes and images of ``shape`` (C, H, W)."""

    def __call__(self, *, classes: int, shape: Shape, stem: Stem) -> nn.Module: ...


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What a person should know of a network before choosing it.

    Attributes:
        name: The name on the command line.
        title: The full name.
        paper: Where it was published.
        stems: Its stems: ``"small"`` keeps the resolution of 32x32 images, ``"large"`` is the ImageNet one.
        build: Builds it: ``build(classes=..., shape=(C, H, W), stem=...)``.
    """

    name: str
    title: str
    paper: str
    stems: tuple[Stem, ...]
    build: Builder


MODELS: Registry[ModelInfo] = Registry("model")


def init_published(model: nn.Module, *, linear_std: float | None = None) -> None:
    """Initialise as published: He normal by fan-out for convolutions, one and zero for BatchNorm.

    Args:
        model: Initialised in place.
        linear_std: Standard deviation of the linear layers' weights, with their biases zero; None leaves torch's own.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear) and linear_std is not None:
            nn.init.normal_(module.weight, 0.0, linear_std)
            nn.init.zeros_(module.bias)
