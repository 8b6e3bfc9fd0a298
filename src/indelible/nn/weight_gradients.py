"""Weight gradients of deep convolutions as matrix products, on a CPU.

    dL/dW[o, i, a, b] = sum over n, y, x of  dy[n, o, y, x] * x[n, i, s y + a - p, s x + b - p]

For each place (a, b) of the kernel that is one product of matrices over all M output positions, (O, M) times (M, I).
torch's kernel for channels_last is slower than those products where images have become small and channels many:
at 128 images of 4 x 4 with 512 channels 301 ms against 134, at 8 x 8 with 256 channels 213 ms against 145 (one thread,
torch 2.13; docs/speed.md). With fewer channels or larger images it is faster, and is used.

Values, and gradients with respect to the input, are torch's own; the weight gradient is the same sum in another order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = ["is_deep", "product_weight_gradients", "weight_gradient"]

_CHANNELS, _POSITIONS = 256, 64
Pair = tuple[int, int]


def weight_gradient(rows: Tensor, gradient: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Return the gradient of a convolution's weight.

    Args:
        rows: (N, I, H, W), what came in.
        gradient: (N, O, H', W'), with respect to what went out.
        kernel: Height and width of the kernel.
        stride: Of the convolution.
        padding: Zeros on either side.

    Returns:
        (O, I, *kernel), channels_last.
    """
    _, out, height, width = gradient.shape
    (down, right), (top, left) = stride, padding
    padded = F.pad(rows.permute(0, 2, 3, 1), (0, 0, left, left, top, top))
    left_hand = gradient.permute(0, 2, 3, 1).reshape(-1, out).t()
    result = rows.new_empty(*kernel, out, rows.shape[1])
    for a in range(kernel[0]):
        for b in range(kernel[1]):
            seen = padded[:, a : a + (height - 1) * down + 1 : down, b : b + (width - 1) * right + 1 : right]
            torch.mm(left_hand, seen.reshape(-1, rows.shape[1]), out=result[a, b])
    return result.permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)


def is_deep(layer: nn.Conv2d, rows: Tensor) -> bool:
    """Tell whether the products are the faster way for a convolution of ``rows``, (N, I, H, W)."""
    sizes = zip(rows.shape[2:], _pair(layer.padding), layer.kernel_size, layer.stride, strict=True)
    height, width = ((size + 2 * pad - kernel) // stride + 1 for size, pad, kernel, stride in sizes)
    many = min(layer.in_channels, layer.out_channels) >= _CHANNELS and layer.kernel_size != (1, 1)
    known = rows.dtype in {torch.float32, torch.float64} and layer.weight.dtype == rows.dtype
    return many and height * width <= _POSITIONS and known and rows.is_contiguous(memory_format=torch.channels_last)


@contextmanager
def product_weight_gradients(model: nn.Module) -> Iterator[None]:
    """Inside the block, deep convolutions of ``model`` on a CPU take their weight gradients as products.

    Only ``nn.Conv2d`` itself, of no subclass, with one group, no dilation and zeros as padding. The ``forward`` of
    these instances is replaced and put back afterwards, also when an exception flies through.
    """
    switched: list[nn.Conv2d] = []
    try:
        for layer in model.modules():
            if type(layer) is nn.Conv2d and _is_plain(layer):
                switched.append(layer)
                layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
        yield
    finally:
        for layer in switched:
            del layer.__dict__["forward"]


def _is_plain(layer: nn.Conv2d) -> bool:
    usual = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
    deep = min(layer.in_channels, layer.out_channels) >= _CHANNELS and not isinstance(layer.padding, str)
    return usual and deep and "forward" not in layer.__dict__ and layer.weight.device.type == "cpu"


def _forward(layer: nn.Conv2d, rows: Tensor) -> Tensor:
    special = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or rows.ndim != 4
    if special or not is_deep(layer, rows):
        return nn.Conv2d.forward(layer, rows)
    result: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
        rows, layer.weight, layer.bias, _pair(layer.stride), _pair(layer.padding)
    )
    return result


def _pair(value: Any) -> Pair:
    first, second = value
    return int(first), int(second)


class _Convolution(torch.autograd.Function):
    """A convolution whose weight gradient is the header's."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(rows, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        rows, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        wanted = ctx.needs_input_grad
        of_rows, _, of_bias = torch.ops.aten.convolution_backward(
            gradient, rows, weight, [weight.shape[0]], ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1,
            [wanted[0], False, wanted[2]],
        )  # fmt: skip
        of_weight = None
        if wanted[1]:
            kernel = _pair(weight.shape[2:])
            of_weight = weight_gradient(rows, gradient, kernel, ctx.stride, ctx.padding)
        return of_rows, of_weight, of_bias, None, None
