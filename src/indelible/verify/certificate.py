"""The certificate: how far the weights may be moved before the smoothed watermark can fail.

Paper: Bansal et al., "Certified Neural Network Watermarks with Randomized Smoothing", ICML 2022; percentile smoothing
of Chiang et al., "Detection as Regression: Certified Object Detection by Median Smoothing", NeurIPS 2020.

The smoothed WSR of weights theta is the median, over G ~ N(0, sigma^2 I), of the WSR at theta + G. Whoever moves theta
by at most eps in the l2 norm cannot push it below the Phi(-eps / sigma) quantile at theta itself. A quantile is bounded
from n draws by an order statistic: of the sorted WSRs x_(1) <= ... <= x_(n),

    P[x_(k) <= q_p] >= P[Bin(n, p) >= k],   so the largest k with that >= confidence gives the bound x_(k)

| symbol | name | default | source |
|---|---|---|---|
| sigma | ``sigma`` | 1.0 | the original's code |
| n | ``draws`` | 1000 | the original's code |
| c | ``confidence`` | 0.99 | the original's code |
| eps | ``radii`` | 0.2, 0.4 .. 2.0 | the original's code |
| - | ``threshold`` | 0.5 | ours: the WSR whose radius is told |

What it says and what not: the *smoothed* WSR is certified, not that of the model as it is; asking for it takes the
weights (white box). Noise goes to all parameters in evaluation mode, as in the original; buffers (BatchNorm's running
statistics) are held, so an attacker who changes those is not covered. A distance is in the units of the weights: the
same network with rescaled layers has another radius. Each statement holds at the confidence by itself, and the samples
are those that were asked: nothing is said of others.

Cost: ``draws`` evaluations of the samples; docs/methods/cw.md has measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.base.records import plain
from indelible.base.seeding import generator
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.keys.key import Key
from indelible.nn.perturbation import perturbed
from indelible.nn.weight_noise import gaussian
from indelible.train.evaluate import hit_rate
from indelible.verify.inquiry import asked_samples
from indelible.verify.statistics import binomial_tail, upper_limit

__all__ = ["RADII", "Certificate", "certified_radius", "certified_rate", "certify", "noisy_rates"]

RADII = tuple(round(0.2 * index, 1) for index in range(1, 11))
_NORMAL = NormalDist()


def certified_rate(rates: Sequence[float], radius: float, sigma: float, confidence: float) -> float | None:
    """Return the WSR below which no weights within ``radius`` have their smoothed WSR; None if nothing can be said.

    Args:
        rates: WSR at each noisy draw, in any order.
        radius: l2 distance that the weights may be moved by.
        sigma: Standard deviation of the noise.
        confidence: Of the statement.
    """
    _check(len(rates), sigma, confidence)
    share = _NORMAL.cdf(-radius / sigma)
    low, high = 0, len(rates)
    while low < high:  # the largest k with P[Bin(n, share) >= k] >= confidence
        middle = (low + high + 1) // 2
        if binomial_tail(middle, len(rates), share) >= confidence:
            low = middle
        else:
            high = middle - 1
    return None if low == 0 else sorted(rates)[low - 1]


def certified_radius(rates: Sequence[float], threshold: float, sigma: float, confidence: float) -> float:
    """Return the largest distance at which the smoothed WSR is certified to be at least ``threshold``; 0 for none.

    With b draws below the threshold, x_(b + 1) is the bound wanted; it is one for every quantile above the
    Clopper-Pearson limit of the rate b / n.
    """
    _check(len(rates), sigma, confidence)
    below = sum(rate < threshold for rate in rates)
    share = upper_limit(below, len(rates), 1.0 - confidence)
    return max(0.0, -sigma * _NORMAL.inv_cdf(share)) if share < 1.0 else 0.0


def noisy_rates(
    model: nn.Module, images: Tensor, labels: Tensor, *, sigma: float = 1.0, draws: int = 1000, seed: int = 0,
    normalize: Normalization | None = None,
) -> list[float]:  # fmt: skip
    """Return the WSR at each of ``draws`` noisy copies of the weights; the model is left as it was, to the bit.

    Args:
        model: Any classifier.
        images: uint8 (m, C, H, W), watermark samples.
        labels: int64 (m,).
        sigma: Standard deviation of the noise on every parameter.
        draws: Noisy copies.
        seed: Decides the noise.
        normalize: (mean, std) that the model's input is normalised by.
    """
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    rates = []
    with Progress("certificate", draws) as bar:
        for draw in range(draws):
            with perturbed(weights, gaussian(weights, sigma, generator(seed, "certificate", draw))):
                rates.append(hit_rate(model, images, labels, normalize=normalize))
            bar.advance()
    return rates


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is certified of a model's watermark.

    Attributes:
        wsr: WSR of the weights as they are.
        smoothed_wsr: Median WSR over the draws.
        mean_wsr: Mean WSR over the draws.
        sigma: Standard deviation of the noise.
        draws: Noisy copies.
        confidence: Of each statement.
        samples: Watermark samples asked.
        threshold: The WSR that ``radius`` belongs to.
        radius: l2 distance within which the smoothed WSR is at least ``threshold``.
        curve: (radius, certified WSR) pairs; None where nothing can be said.
        key: Digest of the key.
        seed: Of the noise.
    """

    wsr: float
    smoothed_wsr: float
    mean_wsr: float
    sigma: float
    draws: int
    confidence: float
    samples: int
    threshold: float
    radius: float
    curve: tuple[tuple[float, float | None], ...]
    key: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def certify(
    model: nn.Module,
    key: Key,
    carriers: Any,
    *,
    sigma: float = 1.0,
    draws: int = 1000,
    confidence: float = 0.99,
    threshold: float = 0.5,
    radii: Sequence[float] = RADII,
    samples: int | None = 100,
    seed: int = 0,
    normalize: Normalization | None = None,
) -> Certificate:
    """Certify the watermark of ``key`` in ``model`` against changes of the weights.

    Args:
        model: Any classifier; its weights are needed.
        key: The owner's key.
        carriers: Images that marks are drawn on, not used in embedding: a test set. Keyed labels: the owner's images.
        sigma: Standard deviation of the noise.
        draws: Noisy copies of the weights; the largest radius that n draws can certify is about 2.6 sigma for 1000.
        confidence: Of each statement.
        threshold: The WSR whose radius is wanted.
        radii: Distances of the curve.
        samples: Watermark samples to ask (the original: 100); None for all that the carriers give.
        seed: Decides the noise.
        normalize: (mean, std) that the model's input is normalised by.
    """
    _check(draws, sigma, confidence)
    if not 0.0 < threshold <= 1.0:
        raise InputError(f"the threshold is a WSR in (0, 1], but is {threshold}.")
    if key.labels == "untargeted":
        # Noise on the weights makes any model err: a high error rate under it says nothing about the mark.
        raise InputError("a certificate is for samples with labels, but this key's are untargeted. Use a fixed target.")
    data = as_data(carriers, classes=key.classes)
    room = len(data) if key.count is None else key.count
    asked = asked_samples(key, data, None, samples if samples is None or key.labels == "fixed" else min(samples, room))
    rates = noisy_rates(
        model, asked.images, asked.labels, sigma=sigma, draws=draws, seed=seed, normalize=normalize
    )  # fmt: skip
    return Certificate(
        wsr=hit_rate(model, asked.images, asked.labels, normalize=normalize),
        smoothed_wsr=sorted(rates)[(draws - 1) // 2], mean_wsr=math.fsum(rates) / draws, sigma=sigma, draws=draws,
        confidence=confidence, samples=len(asked), threshold=threshold,
        radius=certified_radius(rates, threshold, sigma, confidence),
        curve=tuple((radius, certified_rate(rates, radius, sigma, confidence)) for radius in radii),
        key=key.digest, seed=seed,
    )  # fmt: skip


def _check(draws: int, sigma: float, confidence: float) -> None:
    if draws < 1 or sigma <= 0:
        raise InputError(f"a certificate needs draws and sigma above 0, but they are {draws} and {sigma}.")
    if not 0.5 < confidence < 1.0:
        raise InputError(f"the confidence must lie between 0.5 and 1, but is {confidence}. Use 0.99.")
