"""Clean-sample BatchNorm by BatchNorm's own kernels, at about their price.

The clean rows are an ordinary BatchNorm in training mode, the marked rows one in evaluation mode whose "running"
statistics are the clean rows' mean and variance. Only the backward pass joins them. With n values a channel in the
clean rows, x^ = (x - mean) * invstd and sums over *all* rows, clean and marked,

    dx_clean  = gamma * invstd * (dy - sum(dy) / n - x^ * sum(dy * x^) / n)
    dx_marked = gamma * invstd * dy

which is BatchNorm's usual formula but for the marked rows' share of the two sums. BatchNorm's backward kernel gives
both sums in one pass over all rows, as the gradients of beta and gamma; the rest is linear in dy and x, channel by
channel, and is written where it belongs: no row is copied.

The slow, obviously correct form is :func:`~indelible.nn.clean_batchnorm.normalise_by_clean_rows`, which calls this one
where it applies.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def is_fusible(rows: Tensor, clean: int, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Tell whether the kernels apply: marked rows, several clean values, a device that has them, a constant affine."""
    affine = [parameter for parameter in (weight, bias) if parameter is not None]
    constant = all(not parameter.requires_grad and parameter.dtype == rows.dtype for parameter in affine)
    several = 0 < clean < rows.shape[0] and rows[:clean].numel() > rows.shape[1]
    known = rows.device.type in {"cpu", "cuda"} and rows.dtype in {torch.float32, torch.float64}
    return several and constant and known


def fused_clean_batchnorm(rows: Tensor, clean: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalise ``rows`` (N, C, ...) with the statistics of the first ``clean`` of them; see :func:`is_fusible`."""
    gamma = rows.new_ones(rows.shape[1]) if weight is None else weight
    result: Tensor = _FusedCleanBatchNorm.apply(rows, clean, gamma, bias, eps)  # type: ignore[no-untyped-call]
    return result


class _FusedCleanBatchNorm(torch.autograd.Function):
    """The header's formulas; no gradient for gamma and beta."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, clean: int, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        rows = rows.contiguous(memory_format=_layout(rows))
        result = torch.empty_like(rows)
        mean, invstd = _normalise(rows[:clean], weight, bias, None, None, eps, result[:clean])
        variance = invstd.pow(-2) - eps
        _normalise(rows[clean:], weight, bias, mean, variance, eps, result[clean:])
        ctx.save_for_backward(rows, weight, mean, invstd, variance)
        ctx.clean, ctx.eps = clean, eps
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        rows, weight, mean, invstd, variance = ctx.saved_tensors
        # The kernels are several times slower when the two layouts differ.
        clean, gradient = ctx.clean, gradient.contiguous(memory_format=_layout(rows))
        _, gamma_sum, beta_sum = torch.ops.aten.native_batch_norm_backward(
            gradient, rows, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
        )
        values = rows[:clean].numel() // rows.shape[1]
        scale = weight * invstd
        slope = -scale * invstd * gamma_sum / values
        shift = -scale * beta_sum / values - slope * mean
        shape = (1, -1) + (1,) * (rows.ndim - 2)
        result = gradient * scale.view(shape)
        result[:clean].addcmul_(rows[:clean], slope.view(shape)).add_(shift.view(shape))
        return result, None, None, None, None


def _normalise(
    rows: Tensor, weight: Tensor, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None, eps: float,
    result: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """BatchNorm of ``rows`` into ``result``: by their own statistics, or by those given. Returns mean and 1/std."""
    _, saved_mean, saved_invstd = torch.ops.aten.native_batch_norm.out(
        rows, weight, bias, mean, variance, mean is None, 0.0, eps,
        out=result, save_mean=rows.new_empty(0), save_invstd=rows.new_empty(0),
    )  # fmt: skip
    return saved_mean, saved_invstd


def _layout(rows: Tensor) -> torch.memory_format:
    """Return the layout of ``rows``, or the plain one if it has none whose slices the kernels take as they are."""
    last = rows.ndim == 4 and not rows.is_contiguous() and rows.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format
