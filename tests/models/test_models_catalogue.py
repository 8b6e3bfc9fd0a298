"""Every network of the catalogue: published sizes, output shapes, initialisation, and that it learns."""

import copy
import hashlib
import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from indelible.base.errors import InputError
from indelible.models import MODELS, ModelInfo, build_model, stem_for
from indelible.models.catalogue import Shape, Stem

NAMES = [
    "mobilenet-v2",
    "resnet-18",
    "resnet-50",
    "resnet-mini",
    "resnet-w16",
    "resnet-w16-s2",
    "resnet-w8",
    "vgg-16",
    "vit-tiny",
]
QUICK = ["resnet-w8", "resnet-w16", "vit-tiny"]


def count_parameters(name: str, *, classes: int, shape: Shape) -> int:
    model = on_meta(name, classes=classes, shape=shape, stem=stem_for(shape))
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(name: str, *, classes: int, shape: Shape, stem: Stem) -> nn.Module:
    """Build without memory: VGG-16 alone has half a gigabyte of weights."""
    with torch.device("meta"):
        return MODELS[name].build(classes=classes, shape=shape, stem=stem)


def test_the_catalogue_is_complete() -> None:
    assert sorted(MODELS) == NAMES
    for info in MODELS.entries():
        assert info.title
        assert info.paper


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InputError, match="registered already"):
        MODELS.add(ModelInfo(name="resnet-18", title="x", paper="x", build=MODELS["vgg-16"].build))


@pytest.mark.parametrize(
    ("name", "classes", "shape", "published"),
    [
        ("resnet-18", 10, (3, 32, 32), 11_173_962),
        ("resnet-18", 1000, (3, 224, 224), 11_689_512),
        ("resnet-50", 10, (3, 32, 32), 23_520_842),
        ("resnet-50", 1000, (3, 224, 224), 25_557_032),
        ("vgg-16", 10, (3, 32, 32), 14_728_266),
        ("vgg-16", 1000, (3, 224, 224), 138_365_992),
        ("mobilenet-v2", 10, (3, 32, 32), 2_236_682),
        ("mobilenet-v2", 1000, (3, 224, 224), 3_504_872),
    ],
)
def test_published_parameter_counts(name: str, classes: int, shape: Shape, published: int) -> None:
    assert count_parameters(name, classes=classes, shape=shape) == published


def test_resnet_w8_counted_by_hand() -> None:
    def conv(kernel: int, channels: int, out_channels: int) -> int:
        return kernel * kernel * channels * out_channels + 2 * out_channels  # no bias; BatchNorm has gamma and beta

    stem = conv(3, 3, 8)
    stage1 = conv(3, 8, 8) + conv(3, 8, 8)
    stage2 = conv(3, 8, 16) + conv(3, 16, 16) + conv(1, 8, 16)
    stage3 = conv(3, 16, 32) + conv(3, 32, 32) + conv(1, 16, 32)
    head = 32 * 10 + 10
    assert (stem, stage1, stage2, stage3, head) == (232, 1184, 3680, 14_528, 330)
    assert count_parameters("resnet-w8", classes=10, shape=(3, 32, 32)) == stem + stage1 + stage2 + stage3 + head
    assert count_parameters("resnet-w8", classes=10, shape=(1, 28, 28)) == 19_954 - 9 * 2 * 8
    # The mini differs from the net of width 16 in its stem only: 5x5 instead of 3x3.
    assert count_parameters("resnet-mini", classes=10, shape=(3, 32, 32)) == 78_042 + (25 - 9) * 3 * 16
    # A first stage that strides needs a shortcut of its own; a fourth one doubles the width and the head's inputs.
    stage4 = conv(3, 64, 128) + conv(3, 128, 128) + conv(1, 64, 128)
    by_hand = 78_042 + conv(1, 16, 16) + stage4 + 64 * 10
    assert count_parameters("resnet-w16-s2", classes=10, shape=(3, 32, 32)) == by_hand == 309_114


def test_vit_tiny_counted_by_hand() -> None:
    embed, token, position = 4 * 4 * 3 * 64 + 64, 64, (1 + 8 * 8) * 64
    block = 2 * (2 * 64) + (64 * 192 + 192) + (64 * 64 + 64) + (64 * 128 + 128) + (128 * 64 + 64)
    head = 2 * 64 + 64 * 10 + 10
    assert count_parameters("vit-tiny", classes=10, shape=(3, 32, 32)) == embed + token + position + 4 * block + head


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("resnet-18", "ce88913d6e5bbfc8e89996766700cb45115f439632c9fdc01ffe426ea25387a9"),
        ("resnet-50", "218340f9d3037deac0e029064817e2434f9a638034693f6134277670d9fbfddf"),
        ("vgg-16", "87148b56792b5ba47280d61f9247528e4a536ce76bf8dc920c162a5954d89e1a"),
        ("mobilenet-v2", "50b76b5e43373535abcddf82c788baac0af741b325466ea138f5b0f507a5d82b"),
    ],
)
def test_large_stems_take_torchvision_weights(name: str, digest: str) -> None:
    # The digest is of torchvision 0.29's own state_dict: names and shapes in order.
    state = on_meta(name, classes=1000, shape=(3, 224, 224), stem="large").state_dict()
    listed = json.dumps([[key, list(value.shape)] for key, value in state.items()])
    assert hashlib.sha256(listed.encode()).hexdigest() == digest


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 224, 224), (2, 33, 61)])
@pytest.mark.parametrize("stem", ["small", "large"])
@pytest.mark.parametrize("name", NAMES)
def test_output_shape(name: str, stem: Stem, shape: Shape) -> None:
    model = on_meta(name, classes=7, shape=shape, stem=stem)
    assert model(torch.empty(2, *shape, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 40, 32)])
@pytest.mark.parametrize("name", NAMES)
def test_finite_logits_and_gradients(name: str, shape: Shape) -> None:
    model = build_model(name, classes=5, shape=shape, seed=0)
    logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()
    torch.autograd.backward(F.cross_entropy(logits, torch.tensor([0, 1])))
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize(
    ("shape", "stem"),
    [((3, 32, 32), "small"), ((3, 63, 200), "small"), ((3, 64, 64), "large"), ((1, 224, 64), "large")],
)
def test_the_stem_follows_the_size(shape: Shape, stem: Stem) -> None:
    assert stem_for(shape) == stem
    first = next(m for m in build_model("resnet-w8", classes=2, shape=shape).modules() if isinstance(m, nn.Conv2d))
    assert first.stride == ((1, 1) if stem == "small" else (2, 2))


@pytest.mark.parametrize(
    ("name", "stem", "side"),
    [("resnet-18", "small", 4), ("resnet-18", "large", 1), ("mobilenet-v2", "small", 4), ("mobilenet-v2", "large", 1)],
)
def test_resolution_before_the_average(name: str, stem: Stem, side: int) -> None:
    model = on_meta(name, classes=2, shape=(3, 32, 32), stem=stem)
    seen: list[torch.Size] = []
    pool = model.get_submodule("avgpool")
    pool.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape))
    model(torch.empty(2, 3, 32, 32, device="meta"))
    assert seen[0][-2:] == (side, side)


@pytest.mark.parametrize(
    ("name", "large", "norms"), [("resnet-18", 19, 20), ("vgg-16", 12, 13), ("mobilenet-v2", 33, 52)]
)
def test_initialisation_is_he_fan_out(name: str, large: int, norms: int) -> None:
    """Of every convolution with more than 5,000 weights, by their mean and spread; BatchNorm begins as the identity."""
    layers = list(build_model(name, classes=10, shape=(3, 32, 32), seed=3).modules())
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 5000]
    batch_norms = [layer for layer in layers if isinstance(layer, nn.BatchNorm2d)]
    assert (len(convolutions), len(batch_norms)) == (large, norms)
    for layer in convolutions:
        # The fan counts a filter's outputs as if the convolution had one group, as torch does.
        fan_out = layer.out_channels * math.prod(layer.kernel_size)
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.06)
        assert layer.weight.mean().item() == pytest.approx(0, abs=4 * math.sqrt(2 / fan_out / 5000))
    for norm in batch_norms:
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()


def test_vit_has_no_batchnorm() -> None:
    model = build_model("vit-tiny", classes=10, shape=(3, 32, 32))
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    assert not list(model.buffers())


def test_vit_refuses_another_size() -> None:
    model = build_model("vit-tiny", classes=10, shape=(3, 32, 32))
    with pytest.raises(InputError, match="built for 32x32 images, got 28x28"):
        model(torch.zeros(1, 3, 28, 28))


def test_vit_sees_every_pixel() -> None:
    # 30 is no multiple of 4: the last row and column must still reach the logits.
    model = build_model("vit-tiny", classes=10, shape=(1, 30, 30), seed=0)
    images = torch.rand(1, 1, 30, 30, requires_grad=True)
    model(images).sum().backward()
    assert images.grad is not None
    assert (images.grad != 0).all()


@pytest.mark.parametrize("name", ["resnet-w8", "vgg-16", "mobilenet-v2"])
def test_taps_on_batchnorm_are_not_overwritten(name: str) -> None:
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    taps: list[torch.Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(lambda _module, _inputs, output: taps.append(output))
    model(torch.rand(4, 3, 32, 32))
    assert taps
    assert all(tap.min() < 0 for tap in taps)


@pytest.mark.parametrize("name", [*QUICK, "resnet-18", "vgg-16", "mobilenet-v2"])
def test_channels_last_and_copies_agree(name: str) -> None:
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0).double().eval()
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    twin = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        torch.testing.assert_close(twin(images.contiguous(memory_format=torch.channels_last)), model(images))


@pytest.mark.parametrize("name", QUICK)
def test_overfits_sixteen_images(name: str) -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(16, 1, 28, 28, generator=draw)
    labels = torch.arange(16) % 4
    model = build_model(name, classes=4, shape=(1, 28, 28), seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()
    assert loss.item() < 0.1
    assert (model(images).argmax(1) == labels).all()
