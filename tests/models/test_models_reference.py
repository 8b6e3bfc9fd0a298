"""The forward passes against slow transcriptions of the papers, from the weights alone, in double precision."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from indelible.models import build_model


def conv_bn(state: dict[str, Tensor], x: Tensor, conv: str, bn: str, stride: int = 1) -> Tensor:
    """Convolve and normalise by the batch, BatchNorm written out."""
    weight = state[f"{conv}.weight"]
    x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
    mean = x.mean((0, 2, 3), keepdim=True)
    var = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)
    gamma, beta = (state[f"{bn}.{key}"].view(1, -1, 1, 1) for key in ("weight", "bias"))
    return gamma * (x - mean) / (var + 1e-5).sqrt() + beta


def spread(state: dict[str, Tensor]) -> None:
    """Move gamma, beta and biases away from one and zero, so that a mix-up shows."""
    draw = torch.Generator().manual_seed(1)
    for tensor in state.values():
        if tensor.is_floating_point():
            tensor.add_(torch.randn(tensor.shape, generator=draw, dtype=tensor.dtype), alpha=0.05)


def test_resnet_w8() -> None:
    model = build_model("resnet-w8", classes=10, shape=(3, 32, 32), seed=0).double()
    state = model.state_dict()
    spread(state)
    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    expected = conv_bn(state, images, "conv1", "bn1").clamp(min=0)
    for stage, stride in ((1, 1), (2, 2), (3, 2)):
        at = f"layer{stage}.0"
        inner = conv_bn(state, expected, f"{at}.conv1", f"{at}.bn1", stride).clamp(min=0)
        inner = conv_bn(state, inner, f"{at}.conv2", f"{at}.bn2")
        if stage > 1:
            expected = conv_bn(state, expected, f"{at}.downsample.0", f"{at}.downsample.1", stride)
        expected = (expected + inner).clamp(min=0)
    expected = expected.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]
    torch.testing.assert_close(model.train()(images), expected)


def layer_norm(state: dict[str, Tensor], z: Tensor, name: str) -> Tensor:
    centred = z - z.mean()
    return state[f"{name}.weight"] * centred / (centred.pow(2).mean() + 1e-5).sqrt() + state[f"{name}.bias"]


def linear(state: dict[str, Tensor], z: Tensor, name: str) -> Tensor:
    return state[f"{name}.weight"].flatten(1) @ z + state[f"{name}.bias"]


def vit_logits(state: dict[str, Tensor], image: Tensor, *, patch: int, heads: int, depth: int) -> Tensor:
    """One image, one token at a time: equations 1 to 4."""
    tokens = [state["token"][0, 0]]
    for top in range(0, image.shape[1], patch):
        for left in range(0, image.shape[2], patch):
            block = torch.zeros(image.shape[0], patch, patch, dtype=image.dtype)
            piece = image[:, top : top + patch, left : left + patch]
            block[:, : piece.shape[1], : piece.shape[2]] = piece
            tokens.append(linear(state, block.flatten(), "embed"))
    tokens = [token + position for token, position in zip(tokens, state["position"][0], strict=True)]
    size = tokens[0].numel() // heads
    for index in range(depth):
        at = f"blocks.{index}"
        qkv = [linear(state, layer_norm(state, z, f"{at}.norm1"), f"{at}.attention.qkv") for z in tokens]
        queries, keys, values = ([part.chunk(3)[which] for part in qkv] for which in range(3))
        gathered = []
        for query in queries:
            found = []
            for head in range(heads):
                cut = slice(head * size, (head + 1) * size)
                scores = torch.stack([query[cut] @ key[cut] / math.sqrt(size) for key in keys])
                weights = scores.exp() / scores.exp().sum()
                found.append(sum(weight * value[cut] for weight, value in zip(weights, values, strict=True)))
            gathered.append(torch.cat([torch.as_tensor(part) for part in found]))
        tokens = [z + linear(state, g, f"{at}.attention.out") for z, g in zip(tokens, gathered, strict=True)]
        hidden = [linear(state, layer_norm(state, z, f"{at}.norm2"), f"{at}.mlp.0") for z in tokens]
        hidden = [h * (1 + torch.erf(h / math.sqrt(2))) / 2 for h in hidden]
        tokens = [z + linear(state, h, f"{at}.mlp.2") for z, h in zip(tokens, hidden, strict=True)]
    return linear(state, layer_norm(state, tokens[0], "norm"), "head")


def test_vit_tiny() -> None:
    model = build_model("vit-tiny", classes=10, shape=(2, 30, 33), seed=0, stem="large").double()
    state = model.state_dict()
    spread(state)
    images = torch.rand(2, 2, 30, 33, dtype=torch.float64)
    expected = torch.stack([vit_logits(state, image, patch=16, heads=4, depth=4) for image in images])
    torch.testing.assert_close(model(images), expected)
