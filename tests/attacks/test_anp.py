"""ANP: the objective against a slow reference, thresholds by hand, both protocols."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import AdversarialNeuronPruning
from indelible.attacks.anp import NeuronNoise, below_zero, pruned_at
from indelible.attacks.removal_attack import attack
from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.images import ImageData
from indelible.nn.channel_masks import MaskedNetwork, neurons_of
from indelible.train.objective import Step
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = AdversarialNeuronPruning()
    assert (value.eps, value.steps, value.alpha, value.lr, value.momentum) == (0.4, 1, 0.2, 0.2, 0.9)
    assert (value.epochs, value.batch_size, value.threshold, value.ba_drop) == (30, 128, None, 0.02)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\], got 1\.5"):
        AdversarialNeuronPruning(alpha=1.5)


def test_a_mask_at_the_threshold_is_pruned() -> None:
    mask = torch.tensor([0.0, 0.2, 0.5, 1.0])
    assert pruned_at(mask, 0.0).tolist() == [0, 1, 1, 1]
    assert pruned_at(mask, 0.5).tolist() == [0, 0, 0, 1]


def reference(model: nn.Module, images: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The network of the test with masks and noise, written out layer by layer (BatchNorm in training mode)."""
    one, two = model.get_submodule("features.1"), model.get_submodule("features.4")
    x = images
    for convolution, norm, at in (("features.0", one, slice(0, 8)), ("features.3", two, slice(8, 24))):
        x = F.conv2d(x, model.get_submodule(convolution).weight, stride=2, padding=1)  # type: ignore[arg-type]
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        x = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        weight = norm.weight * (mask[at] + noise[0, at])  # type: ignore[operator]
        bias = norm.bias * (1 + noise[1, at])  # type: ignore[operator]
        x = F.relu(x * weight[:, None, None] + bias[:, None, None])
    logits: torch.Tensor = model.get_submodule("head")(F.adaptive_avg_pool2d(x, 2).flatten(1))
    return logits


@pytest.mark.parametrize("protocol", ["sound", "paper"])
def test_a_step_equals_the_slow_reference(net: TinyNet, protocol: str) -> None:
    """One step of the objective: noise from a random start, one signed step, (un)clipped, then the mask's gradient."""
    with torch.no_grad():
        for weight in net.features.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    data = stripes(8)
    images, labels = data.images.float() / 255, data.labels
    method = AdversarialNeuronPruning(protocol=protocol)  # type: ignore[arg-type]
    masked = MaskedNetwork(net, neurons_of(net, images)).train()
    masked.mask.data.fill_(0.7)
    NeuronNoise(masked, method, seed=5).backward(
        Step(masked, images, labels, 3, 0, lambda loss: loss.backward())
    )  # fmt: skip
    mask = torch.full((24,), 0.7, requires_grad=True)
    noise = (torch.rand((2, 24), generator=generator(5, "anp", 3)) * 2 - 1) * 0.4
    noise.requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(reference(net, images, mask, noise), labels), noise)
    worst = (noise + 0.4 * gradient.sign()).detach()
    assert worst.abs().max() > 0.4
    if protocol == "sound":
        worst = worst.clamp(-0.4, 0.4)
    nothing = torch.zeros(2, 24)
    natural = F.cross_entropy(reference(net, images, mask, nothing), labels)
    robust = F.cross_entropy(reference(net, images, mask, worst), labels)
    (0.2 * natural + 0.8 * robust).backward()
    torch.testing.assert_close(masked.mask.grad, mask.grad, atol=1e-6, rtol=1e-4)


def test_masks_are_clipped_before_they_are_used(net: TinyNet) -> None:
    data = stripes(4)
    images = data.images.float() / 255
    masked = MaskedNetwork(net, neurons_of(net, images))
    masked.mask.data = torch.linspace(-1, 2, 24)
    objective = NeuronNoise(masked, AdversarialNeuronPruning(), seed=0)
    objective.backward(Step(masked, images, data.labels, 0, 0, lambda loss: loss.backward()))
    assert (masked.mask.min().item(), masked.mask.max().item()) == (0.0, 1.0)
    assert objective.passes(10) == 30


def test_only_scales_of_normalisation_change(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("anp", epochs=2, threshold=0.9), device="cpu")
    changed = {
        name for name, value in attacked.model.state_dict().items() if not torch.equal(value, net.state_dict()[name])
    }
    assert changed <= {"features.1.weight", "features.4.weight"}
    metrics = attacked.record.metrics
    weights = torch.cat([attacked.model.state_dict()[f"features.{index}.weight"] for index in (1, 4)])
    assert int((weights == 0).sum()) == metrics["pruned"]
    assert metrics["neurons"] == 24
    assert attacked.record.images >= 2 * 3 * 288


def test_thresholds_below_zero_by_hand() -> None:
    """Sixteen neurons below zero: an eighth of them are the two that were pushed furthest, and so on."""
    pushed = torch.arange(-16, 0) / 16.0
    mask = torch.cat([torch.tensor([0.0, 0.3, 1.2]), pushed.flip(0)])
    found = below_zero(mask)
    assert found == (-15 / 16, -13 / 16, -11 / 16, -9 / 16, -7 / 16, -5 / 16, -3 / 16)
    assert [int((pruned_at(mask, threshold) == 0).sum()) for threshold in found] == [2, 4, 6, 8, 10, 12, 14]
    assert int((pruned_at(mask, 0.0) == 0).sum()) == 17  # all below zero, and the one at zero
    assert below_zero(torch.tensor([0.0, 0.5])) == ()
    assert below_zero(torch.tensor([-0.5, 0.5, -0.25])) == (-0.5,)  # of two, four to seven eighths are one


def test_paper_has_no_strength_below_zero(net: TinyNet, data: ImageData) -> None:
    curves = [
        attack(net, data, attack_value("anp", protocol=protocol, epochs=4, eps=1.0, lr=5.0), device="cpu").curve
        for protocol in ("sound", "paper")
    ]
    least = [min(curve.values) for curve in curves if curve is not None]
    assert least[0] < 0
    assert least[1] == 0


def test_paper_thresholds_depend_on_the_number_of_classes(net: TinyNet, data: ImageData) -> None:
    few = attack(net, data, attack_value("anp", protocol="paper", epochs=1), device="cpu")
    assert few.record.metrics["threshold"] == 0.6
    torch.manual_seed(0)
    many = ImageData(data.images[:40], torch.arange(40), tuple(f"class {index}" for index in range(100)))
    attacked = attack(TinyNet(classes=100), many, attack_value("anp", protocol="paper", epochs=1), device="cpu")
    assert attacked.record.metrics["threshold"] == 0.5
