"""Small networks of every family that an attack must handle: (N, 3, 32, 32) images of four classes."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.models.mobilenetv2 import InvertedResidual
from indelible.models.vit import VisionTransformer
from tests.conftest import SHAPE, TinyNet

__all__ = ["NETWORKS", "Tied", "Twice", "make_network"]


def vgg_like() -> nn.Module:
    """Plain convolutions with BatchNorm, a flattened map, two linear layers and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(4),
        nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 16, 12), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(12, 4),
    )  # fmt: skip


def mobile() -> nn.Module:
    """Inverted residuals with depthwise convolutions, one of them beside a shortcut."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(),
        InvertedResidual(6, 6, expansion=2, stride=1), InvertedResidual(6, 8, expansion=2, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def grouped() -> nn.Module:
    """GroupNorm instead of BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.GroupNorm(2, 6), nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip


def transformer() -> nn.Module:
    return VisionTransformer(classes=4, shape=SHAPE, patch=8, width=16, depth=2, heads=2, hidden=16)


class Own(nn.Module):
    """A user's own: one ReLU used twice, functions in between, a frozen stem, logits in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 1).requires_grad_(False)
        self.one, self.two = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.normal, self.relu, self.out = nn.BatchNorm2d(6), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        x = F.max_pool2d(self.relu(self.normal(self.one(self.stem(images)))), 4)
        x = self.relu(self.two(x))
        return {"logits": self.out(x.mean((2, 3)))}


class Twice(nn.Module):
    """One block, with BatchNorm, in two places: the second is the first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=4)
        self.first = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.second = self.first
        self.out = nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.out(self.second(self.first(self.stem(images))).mean((2, 3)))
        return logits


class Tied(nn.Module):
    """No BatchNorm; weights, biases and the classifier's weight are tied across modules, the later runs first."""

    def __init__(self) -> None:
        super().__init__()
        self.later, self.earlier = nn.Linear(4, 4), nn.Linear(4, 4)
        self.stem, self.squeeze, self.out = nn.Conv2d(3, 4, 3, stride=4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.earlier.weight = self.later.weight
        self.stem.bias = self.later.bias
        self.squeeze.weight = self.out.weight

    def forward(self, images: Tensor) -> Tensor:
        x = torch.tanh(self.stem(images)).mean((2, 3))
        logits: Tensor = self.out(torch.tanh(self.squeeze(torch.tanh(self.later(self.earlier(x))))))
        return logits


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "batch-norm": TinyNet, "vgg-like": vgg_like, "mobile": mobile, "group-norm": grouped, "transformer": transformer,
    "own": Own, "one module twice": Twice, "tied parameters": Tied,
}  # fmt: skip


def make_network(name: str) -> nn.Module:
    torch.manual_seed(7)
    return NETWORKS[name]()
