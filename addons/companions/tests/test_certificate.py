"""The certificate against a closed form: a linear model, whose true distance to failure is known.

For one sample x and two classes the margin is m = (w_t - w_o) x + b_t - b_o. Noise of size sigma on all weights and
biases moves it by a normal variable of size sigma * s with s = sqrt(2 (|x|^2 + 1)), so that

    P[hit under noise] = Phi(m / (sigma s)),   true distance to the first weights without the hit = m / s
"""

import copy
import math
from statistics import NormalDist
from typing import Any

import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.keys.content import ContentMark
from indelible.keys.key import Key
from indelible_companions.certificate import RADII, certified_radius, certified_rate, certify, noisy_rates
from tests.conftest import MarkReader, TinyNet, stripes

SIGMA, DRAWS = 0.5, 1000


def linear(margin_in_s: float) -> tuple[nn.Module, Tensor, float]:
    """Return a linear model, one image of it, and m / s."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    image = torch.randint(0, 256, (1, 3, 2, 2), dtype=torch.uint8)
    flat = image.flatten().double() / 255
    scale = math.sqrt(2 * (float(flat @ flat) + 1))
    with torch.no_grad():
        head = net[1]
        assert isinstance(head, nn.Linear)
        head.bias.zero_()
        margin = (head.weight[0] - head.weight[1]).double() @ flat
        head.bias[0] = margin_in_s * scale - margin
    return net, image, margin_in_s


@pytest.mark.parametrize("distance", [0.2, 0.5, 1.0])
def test_hit_rate_and_radius_of_a_linear_model(distance: float) -> None:
    net, image, true = linear(distance)
    before = copy.deepcopy(net.state_dict())
    rates = noisy_rates(net, image, torch.tensor([0]), sigma=SIGMA, draws=DRAWS)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    expected = NormalDist().cdf(true / SIGMA)
    spread = math.sqrt(expected * (1 - expected) / DRAWS)
    assert sum(rates) / DRAWS == pytest.approx(expected, abs=4 * spread)
    radius = certified_radius(rates, 1.0, SIGMA, 0.99)
    # At most the true distance (but for one case in a hundred), and not far below it.
    assert 0.85 * true - 0.06 < radius <= true
    # The rate certified within the radius is the hit; beyond it, no hit is promised.
    assert certified_rate(rates, radius - 1e-6, SIGMA, 0.99) == 1.0
    assert certified_rate(rates, radius + 0.02, SIGMA, 0.99) in {0.0, None}


def test_the_order_statistic_by_hand() -> None:
    """Of 1000 rates 0, 0.001 .. 0.999 the bound at eps is x_(k): P[Bin(1000, Phi(-eps / sigma)) >= k] >= 0.99."""
    rates = [index / 1000 for index in range(1000)]
    for eps in (0.2, 1.0, 1.8):
        share = NormalDist().cdf(-eps)
        k = max(k for k in range(1, 1001) if binom.sf(k - 1, 1000, share) >= 0.99)
        assert certified_rate(list(reversed(rates)), eps, 1.0, 0.99) == rates[k - 1]
    assert certified_rate(rates, 4.0, 1.0, 0.99) is None
    assert certified_rate(rates[:5], 0.0, 1.0, 0.99) is None


def test_the_largest_radius_of_a_perfect_mark() -> None:
    """No draw below: the limit is 1 - 0.01^(1/1000) = 0.004594, and -Phi^-1 of it 2.605."""
    assert certified_radius([1.0] * 1000, 0.5, 1.0, 0.99) == pytest.approx(2.605, abs=0.001)
    assert certified_radius([1.0] * 1000, 0.5, 0.1, 0.99) == pytest.approx(0.2605, abs=0.0001)
    assert certified_radius([0.4] * 1000, 0.5, 1.0, 0.99) == 0.0


def test_the_certificate_of_a_network(net: TinyNet, key: Key) -> None:
    test = stripes(40, seed=1)
    before = copy.deepcopy(net.state_dict())
    found = certify(net, key, test, sigma=0.1, draws=20, samples=10, seed=1)
    again = certify(net, key, test, sigma=0.1, draws=20, samples=10, seed=1)
    assert found == again
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert found.samples == 10
    assert found.curve == tuple((radius, None) for radius in RADII), "20 draws at sigma 0.1 say nothing from 0.2 on"
    assert found.to_json()["curve"][0] == [0.2, None]
    # A model that reads the mark whatever its one weight is loses nothing to noise.
    mark, reader = key.mark(), MarkReader()
    assert isinstance(mark, ContentMark)
    reader.mask, reader.colour = mark.mask(), torch.tensor(mark.colour)[:, None]
    sure = certify(reader, key, test, sigma=0.1, draws=20, samples=10, radii=(0.0, 0.04, 0.08, 0.09))
    assert (sure.wsr, sure.smoothed_wsr, sure.mean_wsr) == (1.0, 1.0, 1.0)
    assert sure.radius == pytest.approx(0.1 * -NormalDist().inv_cdf(1 - 0.01 ** (1 / 20)))  # 0.0821
    assert sure.curve == ((0.0, 1.0), (0.04, 1.0), (0.08, 1.0), (0.09, None))


def test_refusals(net: TinyNet, key: Key) -> None:
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"draws": 0}, r"draws and sigma above 0, got 0 and 1\.0"),
        ({"sigma": 0.0}, r"draws and sigma above 0, got 1000 and 0\.0"),
        ({"confidence": 1.0}, r"confidence must lie between 0\.5 and 1, got 1\.0"),
        ({"threshold": 0.0}, r"threshold is a WSR in \(0, 1\], got 0\.0"),
    ]
    for wrong, says in wrongs:
        with pytest.raises(InputError, match=says):
            certify(net, key, stripes(40), **wrong)
