"""NNL: the paper's settings, reactions and resets by hand, patches on normalised images, protocols, resuming."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.attacks import NeuralNetworkLaundering, attack
from indelible.attacks.neural_cleanse import NeuralCleanse, Triggers
from indelible.attacks.nnl import Laundering, Patch
from indelible.base.errors import DivergedError, InputError
from indelible.data.augment import normalise
from indelible.data.images import ImageData
from indelible.train import Schedule
from indelible.train.objective import Step
from tests.conftest import TinyNet, stripes
from tests.values import attack_value, method_value

QUICK: dict[str, Any] = {"cleanse_epochs": 1, "epochs": 1, "batch_size": 64}


def test_the_papers_settings() -> None:
    value = NeuralNetworkLaundering()
    assert (value.conv_threshold, value.dense_threshold) == (0.8, 0.2)
    assert (value.epochs, value.lr, value.milestone, value.gamma, value.batch_size) == (15, 0.02, 10, 0.1, 128)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    assert value.search(10) == NeuralCleanse(epochs=15)
    assert value.search(100).epochs == 5
    theirs = NeuralNetworkLaundering(protocol="paper").search(10)
    assert (theirs.variant, theirs.epochs, theirs.cost, theirs.batch_size) == ("paper", 15, 1e-4, 128)


class Two(nn.Module):
    """A convolution of two channels, copy and negative of the image, and a sum over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1)
        self.dense = nn.Linear(8, 2)
        with torch.no_grad():
            self.convolution.weight.copy_(torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1))
            self.convolution.bias.fill_(5.0)  # type: ignore[union-attr]
            self.dense.weight.copy_(torch.tensor([[1.0] * 4 + [0.0] * 4, [0.0] * 4 + [1.0] * 4]))
            self.dense.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.dense(self.convolution(images).flatten(1))
        return logits


@pytest.mark.parametrize("added", [True, False])
def test_patches_on_normalised_images(added: bool) -> None:
    """Normalising after the patch is the same as the patch on normalised images."""
    images, by = 0.5 * torch.rand(2, 3, 4, 4), ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    patch = Patch(torch.rand(1, 4, 4), 0.5 * torch.rand(3, 4, 4), added=added)
    torch.testing.assert_close(patch.on_normalised(normalise(images, by), by), normalise(patch.on(images), by))
    torch.testing.assert_close(patch.on_normalised(images, None), patch.on(images))


def test_added_patches_are_clipped_only_to_find_neurons() -> None:
    patch = Patch(torch.ones(1, 1, 1), torch.full((3, 1, 1), 0.5), added=True)
    images = torch.full((1, 3, 1, 1), 0.75)
    assert torch.equal(patch.on(images), torch.ones(1, 3, 1, 1))
    assert torch.equal(patch.on_normalised(images, None), torch.full((1, 3, 1, 1), 1.25))


def test_laundering_step_by_hand() -> None:
    """The loss is the mean over clean and patched halves under the same labels."""
    net, images, labels = Two(), torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    patch = Patch(torch.ones(1, 2, 2), torch.full((1, 2, 2), 0.5))
    objective = Laundering(patch, None)
    loss = objective.backward(Step(net, images, labels, 0, 0, lambda value: value.backward()))
    entropy = nn.functional.cross_entropy
    wanted = (entropy(net(images), labels) + entropy(net(torch.full_like(images, 0.5)), labels)) / 2
    torch.testing.assert_close(loss, wanted.detach())
    assert objective.passes(4) == 8


def flat(pixels: list[int], value: list[float], depth: int) -> Triggers:
    """Return a patch of ones for each of four classes: so many pixels of the mask have its value, in every channel."""
    masks = torch.zeros(4, depth, 32 * 32)
    for label, (count, high) in enumerate(zip(pixels, value, strict=True)):
        masks[label, :, :count] = high
    success = torch.tensor([0.25, 0.5, 0.75, 1.0])
    return Triggers(masks.unflatten(2, (32, 32)), torch.ones(4, 3, 32, 32), success, images=1, earlier=0.0)


def launder(net: TinyNet, data: ImageData, found: Triggers, monkeypatch: pytest.MonkeyPatch, protocol: str) -> Any:
    """Return the record's metrics of an attack whose search found these patches."""
    monkeypatch.setattr("indelible.attacks.nnl.PatchSearch.run", lambda _: found)
    return attack(net, data, attack_value("nnl", protocol=protocol, **QUICK), device="cpu").record.metrics


def test_the_outlier_is_patched_by_hand(net: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms 100, 90, 4, 110: median 95, distances 5, 5, 91, 15 with the median 10, so 91 / 14.826 = 6.138."""
    figures = launder(net, data, flat([100, 90, 4, 110], [1.0] * 4, 1), monkeypatch, "sound")
    assert figures["mask_norms"] == [100.0, 90.0, 4.0, 110.0]
    assert figures["anomaly_indices"] == [0.337, 0.337, 6.138, 1.012]
    assert (figures["suspicious"], figures["patched_class"], figures["patch_success"]) == ([2], 2, 0.75)


def test_without_an_outlier_the_smallest_mask_is_patched(
    net: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms 100, 90, 110, 104: median 102, distances 2, 12, 8, 2 with the median 5, so 12 / 7.413 = 1.619."""
    figures = launder(net, data, flat([100, 90, 110, 104], [1.0] * 4, 1), monkeypatch, "sound")
    assert figures["anomaly_indices"] == [0.270, 1.619, 1.079, 0.270]
    assert (figures["suspicious"], figures["patched_class"]) == ([], 1)


def test_the_papers_code_takes_l2_norms_the_lower_median_and_the_smallest_sum(
    net: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms sqrt(3 n) v = 33, 60, 27, 30: lower median 30, distances 3, 30, 3, 0 with the lower median 3.

    The only outlier, 30 / 4.448 = 6.745, lies above the median: the smallest sum 3 n v wins, of 1089, 1800, 1458, 450.
    """
    figures = launder(net, data, flat([363, 300, 972, 75], [1.0, 2.0, 0.5, 2.0], 3), monkeypatch, "paper")
    assert figures["mask_norms"] == [33.0, 60.0, 27.0, 30.0]
    assert figures["anomaly_indices"] == [0.674, 6.745, 0.674, 0.0]
    assert (figures["suspicious"], figures["patched_class"]) == ([], 3)


@pytest.mark.parametrize("protocol", ["sound", "paper"])
def test_an_ordinary_model_comes_out_with_the_search_on_record(net: TinyNet, data: ImageData, protocol: str) -> None:
    before = copy.deepcopy(net.state_dict())
    attacked = attack(net, data, attack_value("nnl", protocol=protocol, **QUICK), device="cpu")
    assert type(attacked.model) is TinyNet
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    figures = attacked.record.metrics
    # TinyNet has outputs of 16 x 16 and 8 x 8: nothing in between, so both protocols look at both.
    assert (figures["channels"], figures["neurons"]) == (24, 4)
    # An epoch of the search for each class, one look with and one without the patch, an epoch of pairs.
    # Eleven shares are judged on the 32 held-out images.
    assert attacked.record.images == 4 * 320 + 2 * 320 + 11 * 32 + 2 * 320
    assert attacked.curve is not None
    assert figures["share"] == attacked.curve.chosen


def test_thresholds_decide_what_is_reset(net: TinyNet, data: ImageData) -> None:
    settings = {**QUICK, "share": 1.0}
    none = attack(
        net, data, attack_value("nnl", conv_threshold=1e9, dense_threshold=1e9, **settings), device="cpu"
    ).record.metrics
    many = attack(
        net, data, attack_value("nnl", conv_threshold=1e-9, dense_threshold=1e-9, **settings), device="cpu"
    ).record.metrics
    assert (none["channels_reset"], none["neurons_reset"]) == (0, 0)
    assert many["channels_reset"] > 4
    assert many["neurons_reset"] > 0


class Chain(nn.Sequential):
    """Pointwise convolutions with BatchNorm, without a shortcut; only the first gives large numbers."""

    def __init__(self) -> None:
        first = nn.Conv2d(3, 6, 4, stride=8)
        layers: list[nn.Module] = [first, nn.BatchNorm2d(6), nn.ReLU()]
        for _ in range(16):
            layers += [nn.Conv2d(6, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
        with torch.no_grad():
            first.weight.mul_(1e6)
            self.get_buffer("1.running_var").fill_(1e12)
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.bias.fill_(0.5)  # past the ReLU, which would stop a gradient at 0


@pytest.mark.parametrize("protocol", ["sound", "paper"])
@pytest.mark.parametrize("threshold", [1e3, 1e-30], ids=["the first layer reacts", "all layers react"])
def test_no_layer_is_emptied(data: ImageData, protocol: str, threshold: float) -> None:
    """Reset whole, the first layer makes all images alike, and fine-tuning ends in NaN."""
    settings = {**QUICK, "share": 1.0, "conv_threshold": threshold, "dense_threshold": threshold}
    attacked = attack(Chain().eval(), data, attack_value("nnl", protocol=protocol, **settings), device="cpu")
    assert attacked.curve is not None
    layers = [layer for layer in attacked.curve.build(1.0).modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    gone = [int((layer.weight.flatten(1) == 0).all(1).sum()) for layer in layers]
    assert all(2 * count < len(layer.weight) for count, layer in zip(gone, layers, strict=True))
    figures = attacked.record.metrics
    assert sum(gone) == figures["channels_reset"] + figures["neurons_reset"] > 0
    assert figures["spared"] > 0


def test_the_advice_names_settings_that_the_attack_has(net: TinyNet, data: ImageData) -> None:
    with pytest.raises(DivergedError) as caught:
        attack(net, data, attack_value("nnl", **QUICK, lr=1e25), device="cpu")
    assert str(caught.value) == (
        "the loss became NaN in epoch 1. Lower the attack's learning rate: lr=1e+24 (now 1e+25)."
    )
    with pytest.raises(DivergedError, match=r"rate: end_lr=1e\+24 \(now 1e\+25\)\.$"):
        attack(net, data, attack_value("mcr", end_lr=1e25, end_epochs=1, epochs=1, batch_size=64), device="cpu")


def test_the_budget_decides_the_share(net: TinyNet, data: ImageData) -> None:
    """Whatever it costs: all that react; for nothing: only what costs nothing on the held-out images."""
    settings = {**QUICK, "conv_threshold": 1e-3, "dense_threshold": 1e-3}
    free = attack(net, data, attack_value("nnl", ba_drop=1.0, **settings), device="cpu")
    frugal = attack(net, data, attack_value("nnl", ba_drop=0.0, **settings), device="cpu")
    assert free.curve is not None
    assert frugal.curve is not None
    assert free.curve.chosen == 1.0
    chosen = frugal.curve.values.index(frugal.curve.chosen)
    assert frugal.curve.accuracies[chosen] >= frugal.curve.accuracies[0]
    with pytest.raises(InputError, match="share"):
        NeuralNetworkLaundering(share=1.5)


def test_resumes_to_the_same_bits(
    net: TinyNet, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is not made again after a crash in fine-tuning, and still counts."""
    whole = attack(net, data, attack_value("nnl", **QUICK), device="cpu")

    def crash(self: Laundering, step: Step) -> Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Laundering, "backward", crash)
        with pytest.raises(KeyboardInterrupt):
            attack(net, data, attack_value("nnl", **QUICK), device="cpu", folder=tmp_path)
    monkeypatch.setattr("indelible.attacks.neural_cleanse.PatchSearch._advance", crash)
    resumed = attack(net, data, attack_value("nnl", **QUICK), device="cpu", folder=tmp_path)
    assert all(torch.equal(value, whole.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())
    assert resumed.record.images == whole.record.images


def test_nnl_removes_a_vanilla_mark(net: TinyNet, key: indelible.Key) -> None:
    """On a toy task: the mark's class is found, and its success falls far."""
    train = {"epochs": 6, "lr": 0.1, "batch_size": 32, "schedule": Schedule.one_cycle()}
    data, test = stripes(320), stripes(160, seed=1)
    embedded = indelible.embed(
        net,
        data,
        key,
        method_value("vanilla", key, "paper", fraction=0.1),
        scale="paper",
        train=train,
        test=test,
        device="cpu",
    )
    assert embedded.record.metrics["wsr"] > 0.8
    washed = attack(embedded.model, data, attack_value("nnl", cleanse_epochs=12, epochs=6, batch_size=64), device="cpu")
    verdict = indelible.verify(washed.model, key, test)
    assert verdict.wsr < embedded.record.metrics["wsr"] - 0.2
