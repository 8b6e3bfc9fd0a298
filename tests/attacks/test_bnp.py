"""BNP: the distance of two Gaussians and clean moments by hand, a channel with foreign statistics is pruned."""

import math

import pytest
import torch
from torch import nn

from indelible.attacks import BatchNormPruning, attack
from indelible.attacks.bnp import clean_moments, gaussian_kl
from indelible.attacks.removal_attack import Removal
from indelible.data.images import ImageData
from indelible.nn.layers import batch_norms
from indelible.nn.statistics import estimate_statistics
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_settings() -> None:
    value = BatchNormPruning()
    assert (value.u, value.ba_drop, value.protocol) == (None, 0.02, "sound")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_distance_by_hand() -> None:
    """KL(N(1, 1) || N(0, 4)) = ln 2 + (1 + 1) / 8 - 1/2 = 0.4431; of a Gaussian from itself it is 0."""
    one, four = torch.ones(1), torch.full((1,), 4.0)
    assert float(gaussian_kl(one, one, 0 * one, four)) == pytest.approx(math.log(2) + 0.25 - 0.5)
    assert float(gaussian_kl(one, four, one, four)) == 0.0
    # Not symmetric: KL(N(0, 4) || N(1, 1)) = -ln 2 + (4 + 1) / 2 - 1/2 = 1.3069.
    assert float(gaussian_kl(0 * one, four, one, one)) == pytest.approx(2.0 - math.log(2))


def test_clean_moments_by_hand() -> None:
    """A BatchNorm that reads the image: pixels 51 and 153 are 0.2 and 0.6, mean 0.4, variance 0.04."""
    images = torch.zeros(2, 3, 2, 2, dtype=torch.uint8)
    images[0, 0], images[1, 0], images[:, 1] = 51, 153, 255
    norm = nn.BatchNorm2d(3)
    norm.running_mean = torch.tensor([5.0, -1.0, 0.0])  # what it is must not matter
    model = nn.Sequential(norm, nn.Flatten(), nn.Linear(12, 2))
    job = Removal(model=model, data=ImageData(images, torch.tensor([0, 1]), ("a", "b")), seed=0, device="cpu")
    mean, variance = clean_moments(job, dict(batch_norms(model)), job.data)["0"]
    assert mean.tolist() == pytest.approx([0.4, 1.0, 0.0])
    assert variance.tolist() == pytest.approx([0.04, 0.0, 0.0], abs=1e-7)
    assert job.images == 2
    assert norm.running_mean.tolist() == [5.0, -1.0, 0.0]


@pytest.fixture
def settled(net: TinyNet) -> TinyNet:
    """A net whose running statistics are those of stripes, but for one channel of the second layer."""
    images = stripes(320).images.float() / 255
    estimate_statistics(net, images.split(80))
    norm = net.features[4]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    norm.running_mean[7] += 50.0
    return net


def test_the_foreign_channel_is_pruned_alone(settled: TinyNet, data: ImageData) -> None:
    """One huge distance among 16 lies 3.75 deviations above the mean; the first layer has 8 channels, 2.47 at most."""
    attacked = attack(settled, data, attack_value("bnp", protocol="paper"), device="cpu")
    norm = attacked.model.get_submodule("features.4")
    assert isinstance(norm, nn.BatchNorm2d)
    assert (norm.weight == 0).nonzero().flatten().tolist() == [7]
    metrics = attacked.record.metrics
    assert (metrics["u"], metrics["pruned"], metrics["channels"]) == (3.0, 1, 24)
    assert attacked.record.images == 288 + 21 * 32


def test_sound_takes_the_smallest_u_within_the_budget(settled: TinyNet, data: ImageData) -> None:
    assert attack(settled, data, attack_value("bnp", ba_drop=1.0), device="cpu").record.metrics["u"] == 0.0
    assert attack(settled, data, attack_value("bnp", u=2.2), device="cpu").record.metrics["u"] == 2.2


def test_a_layer_that_no_image_reaches_is_left_alone(net: TinyNet, data: ImageData) -> None:
    net.add_module("unused", nn.BatchNorm2d(5))
    attacked = attack(net, data, attack_value("bnp", u=0.0), device="cpu")
    unused = attacked.model.get_submodule("unused")
    assert isinstance(unused, nn.BatchNorm2d)
    assert bool((unused.weight == 1).all())
    assert attacked.record.metrics["channels"] == 24
