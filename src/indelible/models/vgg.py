"""VGG-16 with BatchNorm.

Paper: Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015;
section 2.1 and table 1, column D. BatchNorm: Ioffe, Szegedy, ICML 2015, section 3.2.

    symbol                  name      default                                   source
    3x3 convolutions        STAGES    64x2, 128x2, 256x3, 512x3, 512x3          table 1, column D
    pooling                 -         2x2 maximum, stride 2, after each stage   section 2.1
    large head              stem      4096, 4096, classes; dropout 0.5          section 2.1 and 3.1
    small head              stem      one linear layer                          usual for CIFAR

How it differs: BatchNorm after each convolution and He initialisation make the paper's staged pre-training needless.
The two stems differ in the head only: features are averaged to 7x7 (large) or 1x1 (small), which changes nothing at
224x224 and 32x32 and admits every other size. Pooling rounds up, so that five halvings leave a pixel of 28x28. Modules
carry torchvision's names, so weights of its ``vgg16_bn`` load into the large stem.
"""

from torch import Tensor, nn

from indelible.models.catalogue import MODELS, ModelInfo, Shape, Stem, init_published

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG(nn.Module):
    """VGG-16 with BatchNorm: (N, C, H, W) images to (N, classes) logits; the table in the header explains ``stem``."""

    def __init__(self, *, classes: int, shape: Shape, stem: Stem) -> None:
        super().__init__()
        channels = shape[0]
        self.features = nn.Sequential()
        for stage in STAGES:
            for width in stage:
                self.features.append(nn.Conv2d(channels, width, 3, padding=1))
                self.features.append(nn.BatchNorm2d(width))
                self.features.append(nn.ReLU())
                channels = width
            self.features.append(nn.MaxPool2d(2, ceil_mode=True))
        if stem == "large":
            self.avgpool = nn.AdaptiveAvgPool2d(7)
            self.classifier = nn.Sequential()
            for inputs in (channels * 49, 4096):
                self.classifier.extend([nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout(0.5)])
            self.classifier.append(nn.Linear(4096, classes))
        else:
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.classifier = nn.Sequential(nn.Linear(channels, classes))
        init_published(self, linear_std=0.01)

    def forward(self, images: Tensor) -> Tensor:
        """Return the (N, classes) logits of (N, C, H, W) images."""
        logits: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits


_PAPER = "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015"
MODELS.add(ModelInfo(name="vgg-16", title="VGG-16 with BatchNorm", paper=_PAPER, build=VGG))
