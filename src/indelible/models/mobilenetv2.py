"""MobileNetV2.

Paper: Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018;
section 3.3 and 4, table 1 (block) and table 2 (network).

    symbol                  name        default                                        source
    t, c, n, s              STAGES      expansion, channels, blocks, stride per stage  table 2
    channels after stem     STEM        32                                             table 2
    channels before head    HEAD        1280                                           table 2
    width multiplier        -           1                                              section 4
    dropout before head     -           0.2                                            torchvision; the paper has none
    large stem              stem        stride 2 in the stem and in the second stage   table 2
    small stem              stem        stride 1 in both                               usual for 32x32 images

How it differs: nothing with the large stem. With the small one a 32x32 image ends at 4x4 instead of 1x1; the
parameters are the same. Modules carry torchvision's names, so weights of its ``mobilenet_v2`` load.
"""

from torch import Tensor, nn

from indelible.models.catalogue import MODELS, ModelInfo, Shape, Stem, init_published

STEM, HEAD = 32, 1280
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _activated(channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Widen by ``expansion``, filter each channel, project without activation: (N, channels, H, W) to (N, c, H/s, W/s).

    The input is added where the shape stays the same.
    """

    def __init__(self, channels: int, out_channels: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = channels * expansion
        self.conv = nn.Sequential()
        if expansion > 1:
            self.conv.append(_activated(channels, hidden, 1))
        self.conv.append(_activated(hidden, hidden, 3, stride=stride, groups=hidden))
        self.conv.append(nn.Conv2d(hidden, out_channels, 1, bias=False))
        self.conv.append(nn.BatchNorm2d(out_channels))
        self.residual = stride == 1 and channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the features one block deeper."""
        projected: Tensor = self.conv(x)
        return x + projected if self.residual else projected


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1: (N, C, H, W) images to (N, classes) logits.

    The stem ``"small"`` divides the resolution by 8 in all, ``"large"`` by 32.
    """

    def __init__(self, *, classes: int, shape: Shape, stem: Stem) -> None:
        super().__init__()
        early = 2 if stem == "large" else 1
        self.features = nn.Sequential(_activated(shape[0], STEM, 3, stride=early))
        width = STEM
        for index, (expansion, out_channels, blocks, stride) in enumerate(STAGES):
            first = early if index == 1 else stride
            for position in range(blocks):
                step = first if position == 0 else 1
                self.features.append(InvertedResidual(width, out_channels, expansion=expansion, stride=step))
                width = out_channels
        self.features.append(_activated(width, HEAD, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(HEAD, classes))
        init_published(self, linear_std=0.01)

    def forward(self, images: Tensor) -> Tensor:
        """Return the (N, classes) logits of (N, C, H, W) images."""
        logits: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits


_PAPER = "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018"
MODELS.add(ModelInfo(name="mobilenet-v2", title="MobileNetV2", paper=_PAPER, build=MobileNetV2))
