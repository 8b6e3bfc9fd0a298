"""ONE table for all sweeps: a row of small settings for every embedding method, and the networks they run over."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from indelible.base.checks import setting_names
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import Key
from indelible.models.vit import VisionTransformer
from tests.conftest import SHAPE, TinyNet

CLASSES = 4

# A registered method that has no row here fails the suite.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {},
    "ew": {"epochs": 10, "milestones": (0.8,)},
    "cw": {"levels": 3, "step": 0.02, "draws": 3, "start_epoch": 2, "rows": 16},
    "app": {"alpha": 0.03, "rows": 16, "clean_rows": 16},
    "rehearsed": {"alpha": 0.1, "rows": 16, "clean_rows": 16, "every": 1},
    # Eighty steps: the pull on marked images is stronger than the original's, whose runs are hundreds of times as long.
    "ntl": {"alpha": 1.0, "beta": 3.0, "alpha_mmd": 3.0, "beta_mmd": 3.0},
    # A mark on a few dozen images does not survive a strong attack on the input; here it is about any network.
    "pgd-at": {"eps": 1e-4, "step": 1e-4, "steps": 1},
    "trades": {"eps": 0.004, "step": 0.004, "steps": 1, "beta": 1.0},
    "rose": {"count": 6, "rows": 16},
    "cae": {
        "count": 24, "surrogates": 1, "references": 1, "held": 1, "share": 0.5, "candidates": 32, "steps": 12,
        "eps": 0.6, "lr": 0.08, "threshold": 0.0,
    },
}  # fmt: skip

# The paper's ablations and our own switches are plain settings of the same methods.
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "app without c-BN": ("app", {**SETTINGS["app"], "clean_bn": False}),
    "c-BN without app": ("app", {**SETTINGS["app"], "eps": 0.0}),
    "neither": ("app", {**SETTINGS["app"], "eps": 0.0, "clean_bn": False}),
    "ew folded": ("ew", {**SETTINGS["ew"], "leave": "folded"}),
}


# Key images of another domain: noise on bars is nothing that every network can tell apart by heart.
KEYS: Mapping[str, Mapping[str, Any]] = {
    "rose": {"kind": "unrelated", "labels": "keyed", "count": 6},
    # Two patterns that even a toy tells from foreign ones in eighty steps; texts take a network and a real training.
    "rehearsed": {"kind": "noise", "marks": 2, "strength": 0.4},
}


def key_of(method: str, key: Key) -> Key:
    """Return the key that a sweep embeds with a method: ``key``, or another one of its secret."""
    if method not in KEYS:
        return key
    return Key.create(classes=key.classes, shape=key.shape, secret=key.secret, **KEYS[method])


def share(method: str, fraction: float) -> dict[str, Any]:
    """Return the share of marked images as a setting, for methods that have one."""
    takes = method != "rehearsed" and "fraction" in setting_names(EMBEDDINGS[method].build)
    return {"fraction": fraction} if takes else {}


TRAIN: Mapping[str, Any] = {"epochs": 8, "batch_size": 32, "lr": 0.05, "augmentation": "none"}
FRACTION = 0.15


class GroupNormNet(nn.Module):
    """A network without BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, CLASSES),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


class TupleNet(TinyNet):
    """A network that returns its logits first in a tuple."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]  # that is the point
        features = self.features(images)
        return self.head(features), features


def vit() -> nn.Module:
    return VisionTransformer(classes=CLASSES, shape=SHAPE, patch=8, width=32, depth=1, heads=2, hidden=32)


def hugging_face_vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        num_labels=CLASSES, initializer_range=0.15,
    )  # fmt: skip
    model: nn.Module = ViTForImageClassification(config)
    return model


def hugging_face_resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=CLASSES
    )
    model: nn.Module = ResNetForImageClassification(config)
    return model


_ADAM = {"optimizer": "adamw", "lr": 3e-3, "epochs": 12}
NETS: Mapping[str, tuple[Callable[[], nn.Module], Mapping[str, Any]]] = {
    "batchnorm": (TinyNet, {}),
    "groupnorm": (GroupNormNet, {"lr": 0.1}),
    "vit": (vit, _ADAM),
    "hugging face vit": (hugging_face_vit, _ADAM),
    "hugging face resnet": (hugging_face_resnet, _ADAM),
    "tuple": (TupleNet, {}),
}


def build(net: str) -> nn.Module:
    """Return the network with fixed weights."""
    torch.manual_seed(3)
    return NETS[net][0]()
