"""How far apart two samples of features are: the maximum mean discrepancy with Gaussian kernels of several widths.

Gretton et al., "A Kernel Two-Sample Test", JMLR 2012; several widths around the mean distance as is usual in domain
adaptation (Long et al., "Learning Transferable Features with Deep Adaptation Networks", ICML 2015):

    k(a, b) = sum_i exp(-||a - b||^2 / (w r^(i - M // 2))),  i = 0 .. M - 1
    MMD^2   = mean k(x, x') + mean k(y, y') - 2 mean k(x, y)

| symbol | name | default | source |
|---|---|---|---|
| M | ``kernels`` | 5 | NTL's code |
| r | ``ratio`` | 2 | NTL's code |
| w | - | mean squared distance of two different points, no gradient | NTL's code |

The means are over all pairs, a point with itself among them: the biased estimate, which is never negative.
"""

import torch
from torch import Tensor

__all__ = ["gaussian_mmd"]


def gaussian_mmd(first: Tensor, second: Tensor, *, kernels: int = 5, ratio: float = 2.0) -> Tensor:
    """Return MMD^2 of two samples, differentiable; 0 for equal ones, less than ``2 * kernels``.

    Args:
        first: float (n, D).
        second: float (m, D).
        kernels: How many widths.
        ratio: Between neighbouring widths.
    """
    count = len(first)
    points = torch.cat([first, second])
    points = points - points.detach().mean(0)  # distances stay; what is squared and subtracted below gets small
    norms = points.square().sum(1)
    distances = (norms[:, None] + norms[None] - 2.0 * points @ points.T).clamp_min(0.0)
    # Points that all coincide have no width: any positive one gives 0.
    width = (distances.detach().sum() / (len(points) * (len(points) - 1))).clamp_min(1e-12)
    scales = [width * ratio ** (at - kernels // 2) for at in range(kernels)]
    close = torch.stack([torch.exp(-distances / scale) for scale in scales]).sum(0)
    return close[:count, :count].mean() + close[count:, count:].mean() - 2.0 * close[:count, count:].mean()
