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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.base.records import JsonFields
from indelible.base.seeding import generator
from indelible.data.augment import Normalization
from indelible.data.convert import as_data
from indelible.keys.key import Key
from indelible.nn.noisy_gradient import gaussian
from indelible.nn.perturbation import perturbed
from indelible.report.format import percent
from indelible.train.evaluate import predict
from indelible.verification.statistics.exact_tests import binomial_tail, upper_limit
from indelible.verification.suspect_queries import asked_samples

RADII = tuple(round(0.2 * index, 1) for index in range(1, 11))
_NORMAL = NormalDist()


def hit_rate(model: nn.Module, images: Tensor, labels: Tensor, *, normalize: Normalization | None = None) -> float:
    """Return the share of ``images`` predicted as ``labels`` (WSR on watermark samples), as a fraction."""
    if len(images) == 0:
        raise InputError("there are no watermark samples: their success rate is not defined.")
    hits = predict(model, images, normalize=normalize) == labels
    return int(hits.sum()) / len(images)


def certified_rate(rates: Sequence[float], radius: float, sigma: float, confidence: float) -> float | None:
    """Return the WSR below which no weights within ``radius`` have their smoothed WSR; None if nothing can be said.

    ``rates`` are the WSR at each noisy draw, in any order.
    """
    _check(len(rates), sigma, confidence)
    share = _NORMAL.cdf(-radius / sigma)
    count = len(rates)
    # The largest k with P[Bin(n, share) >= k] >= confidence; the tail falls with k.
    rank = bisect_left(range(1, count + 1), True, key=lambda k: binomial_tail(k, count, share) < confidence)
    return None if rank == 0 else sorted(rates)[rank - 1]


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
    """Return the WSR at each of ``draws`` noisy copies of the weights; the model is left as it was, to the bit."""
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    rates = []
    with Progress("certificate", draws) as bar:
        for draw in range(draws):
            with perturbed(weights, gaussian(weights, sigma, generator(seed, "certificate", draw))):
                rates.append(hit_rate(model, images, labels, normalize=normalize))
            bar.advance()
    return rates


@dataclass(frozen=True, kw_only=True)
class Certificate(JsonFields):
    """What is certified of a model's watermark.

    ``wsr`` is of the weights as they are, ``smoothed_wsr`` and ``mean_wsr`` are median and mean over the draws. Within
    the l2 distance ``radius`` the smoothed WSR is at least ``threshold``; ``curve`` has (radius, certified WSR) pairs,
    None where nothing can be said.
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

    def described(self) -> str:
        """Return the smoothed WSR in words, and how far the weights may be moved."""
        return (
            f"CERTIFICATE at sigma {self.sigma:g}, {self.draws} draws, confidence "
            f"{self.confidence:g}: smoothed WSR {percent(self.smoothed_wsr)} %; it stays at least "
            f"{percent(self.threshold)} % for any change of the parameters within {self.radius:.3g} "
            "in the l2 norm"
        )


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

    Settings are those of the module's header; 1,000 ``draws`` can certify a radius of some 2.6 sigma at most.
    ``carriers`` are images that marks are drawn on, not used in embedding: a test set; with keyed labels, the owner's
    images. ``samples`` is how many are asked (the original: 100), None for all that the carriers give; ``normalize`` is
    (mean, std) of the model's input.
    """
    _check(draws, sigma, confidence)
    if not 0.0 < threshold <= 1.0:
        raise InputError(f"the threshold is a WSR in (0, 1], got {threshold}.")
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
        raise InputError(f"a certificate needs draws and sigma above 0, got {draws} and {sigma}.")
    if not 0.5 < confidence < 1.0:
        raise InputError(f"the confidence must lie between 0.5 and 1, got {confidence}. Use 0.99.")
