"""The kernels against the definition, in double precision: values, gradients, layouts, and where they do not apply."""

import pytest
import torch
from torch import Tensor

from indelible.nn.clean_batchnorm import normalise_by_clean_rows
from indelible.nn.fused_clean_batchnorm import fused_clean_batchnorm, is_fusible

EPS = 1e-5
SHAPES = [(7, 3), (7, 3, 5), (7, 3, 4, 2), (6, 3, 2, 2, 2)]


def _definition(rows: Tensor, clean: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Channel by channel, as the formula is written."""
    channels = []
    for channel in range(rows.shape[1]):
        of_clean = rows[:clean, channel]
        mean = of_clean.mean()
        values = (rows[:, channel] - mean) / ((of_clean - mean).square().mean() + EPS).sqrt()
        values = values if weight is None else values * weight[channel]
        channels.append(values if bias is None else values + bias[channel])
    return torch.stack(channels, dim=1)


def _rows(shape: tuple[int, ...], *, last: bool = False) -> Tensor:
    rows = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 + 0.5
    return (rows.contiguous(memory_format=torch.channels_last) if last else rows).requires_grad_()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_values_and_gradients_are_those_of_the_definition(shape: tuple[int, ...], affine: bool) -> None:
    """For rows of vectors, sequences, images and volumes."""
    rows, direction = _rows(shape), torch.randn(shape, dtype=torch.float64)
    weight = torch.tensor([0.5, -2.0, 1.5], dtype=torch.float64) if affine else None
    bias = torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64) if affine else None
    fast, slow = fused_clean_batchnorm(rows, 4, weight, bias, EPS), _definition(rows, 4, weight, bias)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(fast, rows, direction), torch.autograd.grad(slow, rows, direction), rtol=1e-11, atol=1e-12
    )


def test_channels_last_stays_channels_last() -> None:
    """The layout of the activations is kept, with the same numbers, also for a gradient in the other layout."""
    plain, last = _rows((6, 3, 4, 4)), _rows((6, 3, 4, 4), last=True)
    results = [fused_clean_batchnorm(rows, 3, torch.ones(3).double(), None, EPS) for rows in (plain, last)]
    assert results[1].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(results[0], results[1].contiguous())
    direction = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    (of_plain,), (of_last,) = (
        torch.autograd.grad(y, x, direction) for y, x in zip(results, (plain, last), strict=True)
    )
    torch.testing.assert_close(of_plain, of_last)


def test_strided_rows() -> None:
    """A slice of a larger tensor is normalised by its own values."""
    wide = torch.randn(6, 6, 4, dtype=torch.float64)[:, ::2]
    torch.testing.assert_close(fused_clean_batchnorm(wide, 2, None, None, EPS), _definition(wide, 2, None, None))


def test_where_it_applies() -> None:
    """Not without marked rows, not for one clean value, not when gamma is to learn, not in half precision."""
    rows = torch.randn(4, 2, 3)
    assert is_fusible(rows, 2, None, None)
    assert not is_fusible(rows, 4, None, None)
    assert not is_fusible(rows[:, :, :1], 1, None, None)
    assert not is_fusible(rows, 2, torch.ones(2, requires_grad=True), None)
    assert not is_fusible(rows.half(), 2, None, None)


def test_the_public_form_takes_it() -> None:
    """A constant affine goes through the kernels, a learning one through the definition; the numbers are the same."""
    rows = _rows((8, 3, 4, 4))
    weight = torch.tensor([0.5, -2.0, 1.5], dtype=torch.float64)
    fast = normalise_by_clean_rows(rows, 4, weight, None, EPS)
    slow = normalise_by_clean_rows(rows, 4, weight.clone().requires_grad_(), None, EPS)
    assert fast.grad_fn is not None
    assert "FusedCleanBatchNorm" in fast.grad_fn.name()
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
