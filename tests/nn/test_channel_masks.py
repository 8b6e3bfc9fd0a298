"""Masks: the masked network and the folded one compute the same, for every kind of layer."""

import copy

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.models import build_model
from indelible.nn.channel_masks import (
    MaskedNetwork,
    Neurons,
    fold_inputs,
    masked_inputs,
    neurons_of,
    prune_neurons,
)
from indelible.nn.taps import FeatureReader, feature_reader
from tests.attacks.networks import Tied, Twice, make_network
from tests.conftest import TinyNet

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
NAMES = ["resnet-mini", "vgg-16", "mobilenet-v2", "vit-tiny"]


def some_mask(count: int) -> Tensor:
    return (torch.arange(count) % 3 != 0).float()


@pytest.mark.parametrize("name", NAMES)
def test_input_masks_fold(name: str) -> None:
    """The fold of fine-pruning, for networks whose running statistics are not those of a fresh network."""
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    model.train()(torch.rand(8, 3, 32, 32))
    model.eval()
    reader = feature_reader(model, IMAGES)
    keep = some_mask(reader.channels)
    plain = model(IMAGES)
    with masked_inputs(model, reader, keep):
        masked = model(IMAGES)
    assert torch.equal(model(IMAGES), plain)
    folded = copy.deepcopy(model)
    fold_inputs(folded, reader, keep)
    torch.testing.assert_close(folded(IMAGES), masked, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(masked, plain, atol=1e-4)


def test_input_masks_by_hand() -> None:
    """A map of two channels with two pixels each, read by one neuron with weights 1, 2, 3, 4."""
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    net = nn.Sequential(layer)
    reader = FeatureReader("0", 2, 4, tokens=False)
    with masked_inputs(net, reader, torch.tensor([0.0, 1.0])):
        assert net(torch.ones(1, 4)).item() == 7.0
    fold_inputs(net, reader, torch.tensor([0.0, 1.0]))
    assert layer.weight.tolist() == [[0.0, 0.0, 3.0, 4.0]]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_input_masks_fold_into_grouped_convolutions(groups: int) -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 3, groups=groups))
    images, keep = torch.rand(2, 4, 5, 5), torch.tensor([1.0, 0.0, 0.0, 1.0])
    reader = FeatureReader("0", 4, 4, tokens=False)
    with masked_inputs(net, reader, keep):
        masked = net(images)
    fold_inputs(net, reader, keep)
    torch.testing.assert_close(net(images), masked, atol=1e-6, rtol=1e-6)


class ReadTwice(nn.Module):
    """The layer that reads the feature map shares its weight with the one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.read, self.again = nn.Conv2d(3, 4, 3, stride=4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.again.weight = self.read.weight

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.again(torch.tanh(self.read(self.stem(images).mean((2, 3)))))
        return logits


def test_input_masks_fold_into_a_shared_weight() -> None:
    """Fine-tuned under a mask on one layer only, the network would change when the mask is folded into both."""
    torch.manual_seed(0)
    model = ReadTwice().eval()
    reader = feature_reader(model, IMAGES)
    assert reader.name == "read"
    keep, plain = torch.tensor([1.0, 0.0, 0.0, 1.0]), model(IMAGES)
    with masked_inputs(model, reader, keep):
        masked = model(IMAGES)
    assert torch.equal(model(IMAGES), plain)
    fold_inputs(model, reader, keep)
    torch.testing.assert_close(model(IMAGES), masked, atol=1e-6, rtol=1e-6)
    assert model.again.weight is model.read.weight


def test_a_weight_that_is_computed_takes_no_mask() -> None:
    """Written into the result of the computation, the mask would be gone with the next pass."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 1))
    net, reader, keep = nn.Sequential(layer), FeatureReader("0", 4, 4, tokens=False), torch.tensor([0.0, 1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"'0', whose weight is computed .*Remove the parametrisation first, or .* ft"):
        fold_inputs(net, reader, keep)


@pytest.mark.parametrize("name", NAMES)
def test_neuron_masks_fold(name: str) -> None:
    """The fold of ANP."""
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    model.train()(torch.rand(8, 3, 32, 32))
    model.eval()
    neurons = neurons_of(model, IMAGES)
    masked = MaskedNetwork(model, neurons).eval()
    torch.testing.assert_close(masked(IMAGES), model(IMAGES), atol=0, rtol=0)
    masked.mask.data = some_mask(len(masked.mask))
    expected = masked(IMAGES)
    prune_neurons(model, neurons, masked.mask.detach())
    torch.testing.assert_close(model(IMAGES), expected, atol=1e-6, rtol=1e-6)


def test_neuron_masks_and_noise_by_hand() -> None:
    """One BatchNorm channel with weight 2 and bias 3: x = 1 becomes (m + d) * 2 + (1 + e) * 3."""
    net = nn.Sequential(nn.BatchNorm2d(1, eps=0.0))
    net[0].weight.data, net[0].bias.data = torch.tensor([2.0]), torch.tensor([3.0])
    masked = MaskedNetwork(net.eval(), (Neurons("0.weight", "0.bias", 1),)).eval()
    masked.mask.data = torch.tensor([0.5])
    image = torch.ones(1, 1, 1, 1)
    assert masked(image).item() == pytest.approx(0.5 * 2 + 3)
    noise = torch.tensor([[0.25], [-0.5]])
    assert masked(image, noise).item() == pytest.approx(0.75 * 2 + 0.5 * 3)
    assert [weight.item() for weight in net.parameters()] == [2.0, 3.0]


def test_neurons_are_batchnorm_channels_else_outputs_of_inner_layers() -> None:
    assert neurons_of(TinyNet(), IMAGES) == (
        Neurons("features.1.weight", "features.1.bias", 8),
        Neurons("features.4.weight", "features.4.bias", 16),
    )
    grouped = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 10),
    )  # fmt: skip
    assert neurons_of(grouped, IMAGES) == (Neurons("0.weight", None, 4), Neurons("5.weight", "5.bias", 6))
    vit = build_model("vit-tiny", classes=10, shape=(3, 32, 32), seed=0)
    names = [unit.weight for unit in neurons_of(vit, IMAGES)]
    assert names[0] == "embed.weight"
    assert "blocks.3.mlp.2.weight" in names
    assert "head.weight" not in names
    with pytest.raises(InputError, match="no inner linear layer"):
        neurons_of(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), IMAGES)


def test_shared_weights_have_one_mask() -> None:
    """Calls of ``Tied``: stem, earlier, later (earlier's weight), squeeze (the classifier's weight), out."""
    assert neurons_of(Twice(), IMAGES) == (Neurons("first.1.weight", "first.1.bias", 6),)
    assert neurons_of(Tied(), IMAGES) == (
        Neurons("stem.weight", "stem.bias", 4),
        Neurons("earlier.weight", "earlier.bias", 4),
    )


def test_a_shared_bias_is_moved_once() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    net[1].bias = net[0].bias
    assert neurons_of(net, IMAGES) == (Neurons("0.weight", "0.bias", 3), Neurons("1.weight", None, 3))


def test_computed_weights_have_no_mask() -> None:
    """Weight norm computes the weight from two others: what a mask put there would be lost."""
    net = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 32)), nn.Flatten(), nn.Linear(4, 5), nn.Linear(5, 2)
    )
    assert neurons_of(net, IMAGES) == (Neurons("2.weight", "2.bias", 5),)


@pytest.mark.parametrize("network", ["one module twice", "tied parameters"])
def test_masks_on_shared_weights_train_step_after_step(network: str) -> None:
    """Each step's gradient is that of a copy whose weights were scaled by hand; the fold is the mask's network."""
    model = make_network(network).eval()
    neurons = neurons_of(model, IMAGES)
    masked = MaskedNetwork(model, neurons).eval()
    optimiser = torch.optim.SGD([masked.mask], lr=0.1)
    for _ in range(3):
        copied = copy.deepcopy(model)
        prune_neurons(copied, neurons, masked.mask.detach())
        scaled = [copied.get_parameter(unit.weight) for unit in neurons]
        gradients = torch.autograd.grad(copied(IMAGES).square().sum(), scaled)
        # d loss / d m = sum over the neuron's weights of w * d loss / d (m w)
        expected = [
            (model.get_parameter(unit.weight) * gradient).flatten(1).sum(1)
            if gradient.ndim > 1 else model.get_parameter(unit.weight) * gradient
            for unit, gradient in zip(neurons, gradients, strict=True)
        ]  # fmt: skip
        optimiser.zero_grad()
        answer = masked(IMAGES)
        torch.testing.assert_close(answer, copied(IMAGES))
        answer.square().sum().backward()
        torch.testing.assert_close(masked.mask.grad, torch.cat(expected))
        optimiser.step()
    masked(IMAGES, 0.1 * torch.rand(2, len(masked.mask))).sum().backward()
    for name, weight in masked.network.named_parameters():
        assert isinstance(weight, nn.Parameter)
        assert torch.equal(weight, model.get_parameter(name))
