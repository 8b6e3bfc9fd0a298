"""Taps: stages and readers of many families found by shapes, and nothing left behind."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.models import build_model
from indelible.nn.taps import FeatureReader, feature_reader, stage_outputs, tapped, trace
from tests.conftest import TinyNet

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def stages_of(name: str) -> list[str]:
    return [place[0] for place in stage_outputs(build_model(name, classes=10, shape=(3, 32, 32), seed=0), IMAGES)]


def test_stages_of_residual_networks_are_their_four_layers() -> None:
    assert stages_of("resnet-18") == ["layer1", "layer2", "layer3", "layer4"]
    # The first convolution of a bottleneck still has the resolution of the stage before: it is not its end.
    assert stages_of("resnet-50") == ["layer1", "layer2", "layer3", "layer4"]
    assert stages_of("resnet-mini") == ["layer1", "layer2", "layer3"]


def test_stages_of_other_families() -> None:
    vgg = build_model("vgg-16", classes=10, shape=(3, 32, 32), seed=0)
    found = stage_outputs(vgg, IMAGES)
    with tapped(vgg, found) as maps:
        vgg.eval()(IMAGES)
    assert [tuple(maps[place].shape[1:]) for place in found] == [
        (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4), (512, 2, 2)
    ]  # fmt: skip
    mobile = build_model("mobilenet-v2", classes=10, shape=(3, 32, 32), seed=0)
    found = stage_outputs(mobile, IMAGES)
    with tapped(mobile, found) as maps:
        mobile.eval()(IMAGES)
    assert [tuple(maps[place].shape[1:]) for place in found] == [
        (24, 32, 32), (32, 16, 16), (96, 8, 8), (1280, 4, 4)
    ]  # fmt: skip
    vit = build_model("vit-tiny", classes=10, shape=(3, 32, 32), seed=0)
    found = stage_outputs(vit, IMAGES)
    with tapped(vit, found) as maps:
        vit(IMAGES)
    assert [tuple(maps[place].shape[1:]) for place in found] == [(64, 8, 8), (65, 64)]


class Shared(nn.Module):
    """One ReLU called twice, functions between modules, a flattened map read by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.relu, self.out = nn.ReLU(inplace=True), nn.Linear(6 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.relu(self.one(x)), 4)
        x = F.max_pool2d(self.relu(self.two(x)), 2)
        logits: Tensor = self.out(x.flatten(1))
        return logits


def test_a_module_that_is_called_twice_is_two_places() -> None:
    net = Shared()
    assert stage_outputs(net, IMAGES) == [("relu", 0), ("relu", 1)]
    with tapped(net, [("relu", 1)]) as maps:
        net(IMAGES)
    assert maps["relu", 1].shape == (2, 6, 8, 8)
    assert feature_reader(net, IMAGES) == FeatureReader("out", 6, 96, tokens=False)


def test_the_reader_of_the_last_map() -> None:
    for name, expected in {
        "resnet-mini": FeatureReader("fc", 64, 64, tokens=False),
        "vgg-16": FeatureReader("classifier.0", 512, 512, tokens=False),
        "mobilenet-v2": FeatureReader("classifier.1", 1280, 1280, tokens=False),
        "vit-tiny": FeatureReader("head", 64, 64, tokens=True),
    }.items():
        model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
        assert feature_reader(model, IMAGES) == expected
    fully = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert feature_reader(fully, IMAGES) == FeatureReader("2", 8, 8, tokens=False)  # the classes themselves are spared


def test_spread_and_gather_follow_how_a_map_is_flattened() -> None:
    values = torch.tensor([1.0, 2.0])
    pixels, tokens = FeatureReader("x", 2, 6, tokens=False), FeatureReader("x", 2, 6, tokens=True)
    assert pixels.spread(values).tolist() == [1, 1, 1, 2, 2, 2]  # (C, H, W) flattened
    assert tokens.spread(values).tolist() == [1, 2, 1, 2, 1, 2]  # (tokens, D) flattened
    each = torch.arange(6.0)
    assert pixels.gather(each).tolist() == [0 + 1 + 2, 3 + 4 + 5]
    assert tokens.gather(each).tolist() == [0 + 2 + 4, 1 + 3 + 5]


def test_tracing_leaves_nothing_behind() -> None:
    net = TinyNet().train()
    net.features[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    calls = trace(net, IMAGES)
    assert [call.place[0] for call in calls][-2:] == ["head", ""]
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert net.training
    assert not net.features[1].training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_networks_without_feature_maps_are_refused_with_the_reason() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(InputError, match="no feature map"):
        stage_outputs(flat, IMAGES)
    with pytest.raises(InputError, match="no convolution or linear layer behind a feature map"):
        feature_reader(flat, IMAGES)
