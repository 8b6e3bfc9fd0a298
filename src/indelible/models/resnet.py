"""Residual networks: ResNet-18, ResNet-50, and four narrow ones for work on a CPU.

Paper: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016; section 3.3 and table 1
(ImageNet), section 4.2 (CIFAR-10); initialisation: He et al., "Delving Deep into Rectifiers", ICCV 2015, section 2.2.

    symbol                  name      resnet-18     resnet-50     resnet-w8  resnet-w16  source
    channels after stem     width     64            64            8          16          table 1; section 4.2: 16
    blocks per stage        blocks    2, 2, 2, 2    3, 4, 6, 3    1, 1, 1    1, 1, 1     table 1; section 4.2: n, n, n
    block                   block     basic         bottleneck    basic      basic       figure 5
    small stem              stem      3x3 convolution, stride 1                          section 4.2
    large stem              stem      7x7 convolution, stride 2; 3x3 maximum, stride 2   table 1

``resnet-mini`` is resnet-w16 with a small stem of one 5x5 convolution, stride 2: a quarter of the pixels in every
stage, so that it trains faster than resnet-w8 with four times its parameters. It is the network of the demo.
``resnet-w16-s2`` has four stages of one block that all stride: its stem still sees every pixel, which a watermark of
strokes one pixel wide needs, yet it trains twice as fast as resnet-w16, with four times its parameters. It is the
network of ``cifar10-cpu``.

How it differs: a shortcut that changes shape is a 1x1 convolution with BatchNorm at every size (the paper's option B;
its CIFAR networks use option A), and a bottleneck strides in its 3x3 convolution instead of the first 1x1, which keeps
the parameter count. Both are what published ResNet results on CIFAR use. Modules carry torchvision's names, so weights
of its ResNet-18 and ResNet-50 load into the large stem. The narrow ones follow section 4.2 with n = 1 (resnet-w16 is
the paper's 8-layer member of that family but for the shortcuts).
"""

from collections.abc import Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from indelible.models.catalogue import MODELS, ModelInfo, Shape, Stem, init_published

_PAPER = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"


def _shortcut(channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels == out_channels:
        return None
    return nn.Sequential(
        nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (N, channels, H, W) to (N, width, H / stride, W / stride)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features one block deeper."""
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        return F.relu(residual + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut: (N, channels, H, W) to (N, 4 width, H / stride, W / stride)."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut(channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features one block deeper."""
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = F.relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        return F.relu(residual + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ResNet(nn.Module):
    """A residual network: (N, C, H, W) images to (N, classes) logits; the table in the header explains the settings.

    Every stage doubles the channels, and every stage but the first halves the resolution. ``small_stem`` is the kernel
    size and stride of the small stem's convolution, ``first_stride`` the stride of the first stage.
    """

    def __init__(
        self,
        *,
        classes: int,
        shape: Shape,
        stem: Stem,
        width: int,
        blocks: Sequence[int],
        block: type[BasicBlock | Bottleneck],
        small_stem: tuple[int, int] = (3, 1),
        first_stride: int = 1,
    ) -> None:
        super().__init__()
        large = stem == "large"
        kernel, stride = (7, 2) if large else small_stem
        self.conv1 = nn.Conv2d(shape[0], width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        features, self.stages = width, len(blocks)
        for index, count in enumerate(blocks):
            stage = nn.Sequential()
            for position in range(count):
                stride = 1 if position > 0 else first_stride if index == 0 else 2
                stage.append(block(features, width << index, stride))
                features = (width << index) * block.expansion
            self.add_module(f"layer{index + 1}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features, classes)
        init_published(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return the (N, classes) logits of (N, C, H, W) images."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        for index in range(self.stages):
            x = self.get_submodule(f"layer{index + 1}")(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


_narrow = partial(ResNet, blocks=(1, 1, 1), block=BasicBlock)
_strided = partial(ResNet, width=16, blocks=(1, 1, 1, 1), block=BasicBlock, first_stride=2)
for _name, _title, _build in (
    ("resnet-18", "ResNet-18", partial(ResNet, width=64, blocks=(2, 2, 2, 2), block=BasicBlock)),
    ("resnet-50", "ResNet-50", partial(ResNet, width=64, blocks=(3, 4, 6, 3), block=Bottleneck)),
    ("resnet-w8", "ResNet of width 8, three stages of one block", partial(_narrow, width=8)),
    ("resnet-w16", "ResNet of width 16, three stages of one block", partial(_narrow, width=16)),
    ("resnet-w16-s2", "ResNet of width 16, four stages of stride 2", _strided),
    ("resnet-mini", "ResNet of width 16 behind a stem of stride 2", partial(_narrow, width=16, small_stem=(5, 2))),
):
    MODELS.add(ModelInfo(name=_name, title=_title, paper=_PAPER, build=_build))
