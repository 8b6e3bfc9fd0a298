"""The worst input near an image: projected gradient ascent in the largest-change norm.

Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR 2018, Section 2.1:

    x_(t+1) = P(x_t + step * sign(gradient of the loss at x_t)),   P: into |x - x_0| <= eps and into [0, 1]

P is :func:`projected`, x_0 is ``origin``; a first ``start`` is drawn by :func:`ball_noise` or :func:`small_noise`.
Images are those before any normalisation: eps is a share of a pixel's range.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from indelible.data.augment import WHOLE, Share


def projected(images: Tensor, origin: Tensor, eps: float) -> Tensor:
    """Return the nearest point to ``images`` within ``eps`` of ``origin`` and within [0, 1], pixel by pixel."""
    return images.maximum(origin - eps).minimum(origin + eps).clamp(0.0, 1.0)


def sign_ascent(
    origin: Tensor, start: Tensor, loss: Callable[[Tensor], Tensor], *, eps: float, step: float, steps: int
) -> Tensor:
    """Return images near ``origin``, float (N, C, H, W) in [0, 1], at which ``loss`` is large; detached, on no graph.

    Only the sign of the gradient counts, so that sum and mean are the same.
    """
    found = projected(start.detach(), origin, eps)
    for _ in range(steps):
        found.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(found), [found])
        found = projected(found.detach() + step * gradient.sign(), origin, eps)
    return found


def ball_noise(like: Tensor, eps: float, random: torch.Generator, share: Share = WHOLE) -> Tensor:
    """Return noise that is uniform in [-eps, eps], of the shape of ``like``, this process' part of a batch.

    ``random`` lives on the CPU, whatever the device; all processes seed it alike and each takes its rows.
    """
    drawn = torch.rand((len(like) * share.world, *like.shape[1:]), generator=random, dtype=torch.float32)
    return share.of(drawn).to(like).mul_(2.0 * eps).sub_(eps)


def small_noise(like: Tensor, scale: float, random: torch.Generator, share: Share = WHOLE) -> Tensor:
    """Return Gaussian noise of standard deviation ``scale``; arguments as in :func:`ball_noise`."""
    drawn = torch.randn((len(like) * share.world, *like.shape[1:]), generator=random, dtype=torch.float32)
    return share.of(drawn).to(like).mul_(scale)
