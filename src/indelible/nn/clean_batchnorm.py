"""Clean-sample BatchNorm (c-BN) for any module, without touching its code.

Paper: Gan et al., "Towards Robust Model Watermark via Reducing Parametric Vulnerability", ICCV 2023, Section 3.3.

A batch holds clean rows first, watermark rows after them. Every BatchNorm normalises *all* rows with the mean and
variance of the clean rows only:

    y = gamma * (x - mean(x_clean)) / sqrt(var(x_clean) + eps) + beta

| symbol | here | source |
|---|---|---|
| mean, var of the clean rows | in the graph: gradients flow through them | the authors' code; the text does not say |
| gamma, beta | constants: no gradient reaches them | the authors' code; the text does not say |
| running statistics | neither read nor changed | the authors' code |
| several processes | each by its own clean rows | ours |

A layer whose class has a ``forward`` of its own (an activation behind the normalisation, further arguments) keeps it:
only its call of :func:`torch.nn.functional.batch_norm` is replaced. One that computes its statistics in another way is
refused in the first pass.

Layers in evaluation mode (frozen by the user) keep using their running statistics. Models without BatchNorm pass
through unchanged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode

from indelible.base.errors import InputError
from indelible.nn.fused_clean_batchnorm import fused_clean_batchnorm, is_fusible
from indelible.nn.layers import BatchNorm, batch_norms
from indelible.nn.surgery import standing_in


def normalise_by_clean_rows(
    rows: Tensor, clean: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:  # fmt: skip
    """Normalise ``rows`` (N, C, ...) with the statistics of the first ``clean`` of them."""
    # Half precision has too few bits for a variance: compute it, like BatchNorm itself, in float32.
    exact = rows.float() if rows.dtype in {torch.float16, torch.bfloat16} else rows
    # A compiler makes its own kernels of the formula below.
    if not torch.compiler.is_compiling() and is_fusible(exact, clean, weight, bias):
        return fused_clean_batchnorm(exact, clean, weight, bias, eps).to(rows.dtype)
    axes = [axis for axis in range(rows.ndim) if axis != 1]
    variance, mean = torch.var_mean(exact[:clean], dim=axes, correction=0)
    scale = torch.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias
    shape = (1, -1) + (1,) * (rows.ndim - 2)
    return torch.addcmul(shift.view(shape), exact, scale.view(shape)).to(rows.dtype)


@contextmanager
def clean_statistics(model: nn.Module, *, clean: int, rows: int) -> Iterator[None]:
    """Inside the block, the BatchNorm layers of ``model`` in training mode normalise by the clean rows of the batch.

    Of ``rows`` rows the first ``clean`` are clean. A network that folds another axis into the batch (patches, frames)
    keeps the proportion, as long as the rows of one image stay together.
    """
    if not 0 < clean <= rows:
        raise InputError(f"clean statistics need 1..{rows} clean rows, got {clean}.")
    forwards: dict[nn.Module, Callable[..., Any]] = {}
    for name, layer in batch_norms(model):
        if isinstance(layer.weight, UninitializedParameter):
            raise InputError(f"the lazy layer {name!r} has no shape yet. Pass one batch through the model first.")
        if layer.training or layer.running_mean is None:
            forwards[layer] = _stand_in(layer, name, clean, rows)
    with standing_in(forwards):
        yield


def _stand_in(layer: BatchNorm, name: str, clean: int, rows: int) -> Callable[..., Any]:
    """Return the forward of a layer by the statistics of ``clean`` of ``rows`` rows; gamma and beta are constants."""

    def normalise(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        here, rest = divmod(x.shape[0] * clean, rows)
        if rest:
            raise InputError(
                f"the layer {name!r} sees {x.shape[0]} rows for a batch of {rows}: its rows cannot be told clean from "
                "marked. Use eps without c-BN (`clean_bn=False`) for this network."
            )
        weight = None if weight is None else weight.detach()
        bias = None if bias is None else bias.detach()
        return normalise_by_clean_rows(x, here, weight, bias, eps)

    def forward(x: Tensor) -> Tensor:
        return normalise(x, layer.weight, layer.bias, layer.eps)

    def own_forward(*args: Any, **kwargs: Any) -> Any:
        with _kept_buffers(layer), _Answering(normalise) as mode:
            result = type(layer).forward(layer, *args, **kwargs)
        if not mode.calls and clean < rows:
            raise InputError(
                f"c-BN cannot give the layer {name!r} the statistics of the clean rows: {type(layer).__name__} is a "
                "BatchNorm whose forward does not call torch.nn.functional.batch_norm. Call it there, or "
                "set `clean_bn=False` for this network."
            )
        return result

    return forward if type(layer).forward in {BatchNorm.forward, nn.SyncBatchNorm.forward} else own_forward


class _Answering(TorchFunctionMode):
    """Inside the block, ``normalise`` answers calls of BatchNorm in training mode; ``calls`` counts all calls."""

    def __init__(self, normalise: Callable[..., Tensor]) -> None:
        super().__init__()
        self.normalise, self.calls = normalise, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.calls += func is F.batch_norm
        if func is F.batch_norm and kwargs["training"]:  # torch gives the rows by position, the affine part by name
            return self.normalise(args[0], kwargs["weight"], kwargs["bias"], kwargs["eps"])
        return func(*args, **kwargs)


@contextmanager
def _kept_buffers(layer: nn.Module) -> Iterator[None]:
    """Inside the block, the layer works on copies of its buffers."""
    own = dict(layer.named_buffers(recurse=False))
    try:
        # Replaced, not written back: the graph of the pass may still need the numbers that it saw.
        for name, buffer in own.items():
            setattr(layer, name, buffer.clone())
        yield
    finally:
        for name, buffer in own.items():
            setattr(layer, name, buffer)
