"""The APP step against a straight transcription of Algorithm 1, in double precision."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.embed.app import AdversarialPerturbation, WatermarkPasses, watermark_loss
from indelible.keys.key import Key
from tests.conftest import TinyNet, stripes


def batchnorm_by_hand(layer: nn.BatchNorm2d, rows: Tensor, clean: int) -> Tensor:
    mean = rows[:clean].mean((0, 2, 3), keepdim=True)
    variance = ((rows[:clean] - mean) ** 2).mean((0, 2, 3), keepdim=True)
    gamma, beta = layer.weight.detach()[None, :, None, None], layer.bias.detach()[None, :, None, None]
    return gamma * (rows - mean) / (variance + layer.eps).sqrt() + beta


def forward_by_hand(net: TinyNet, weights: dict[str, Tensor], rows: Tensor, clean: int) -> Tensor:
    """TinyNet written out, with given weights and c-BN."""
    x = F.conv2d(rows, weights["features.0.weight"], stride=2, padding=1)
    x = F.relu(batchnorm_by_hand(net.features[1], x, clean))  # type: ignore[arg-type]
    x = F.conv2d(x, weights["features.3.weight"], stride=2, padding=1)
    x = F.relu(batchnorm_by_hand(net.features[4], x, clean))  # type: ignore[arg-type]
    x = F.adaptive_avg_pool2d(x, 2).flatten(1)
    return x @ weights["head.weight"].T + weights["head.bias"]


def algorithm_one(
    net: TinyNet, images: Tensor, labels: Tensor, marked: Tensor, wm_labels: Tensor, method: AdversarialPerturbation
) -> dict[str, Tensor]:
    """Lines 3 to 7: returns g for every parameter."""
    plain = copy.deepcopy(net)
    F.cross_entropy(plain(images), labels).backward()  # line 4
    g = {name: parameter.grad.clone() for name, parameter in plain.named_parameters() if parameter.grad is not None}
    perturbed_names = ["features.0.weight", "features.3.weight", "head.weight", "head.bias"]
    theta = {name: value.detach().clone() for name, value in net.named_parameters() if name in perturbed_names}
    clean = images[: method.clean_rows]
    rows = torch.cat([clean, marked]) if method.clean_bn else marked
    counted = len(clean) if method.clean_bn else len(marked)

    def loss_at(weights: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(forward_by_hand(net, weights, rows, counted)[-len(marked) :], wm_labels)

    at = {name: value.clone().requires_grad_() for name, value in theta.items()}
    ascent = dict(zip(theta, torch.autograd.grad(loss_at(at), list(at.values())), strict=True))
    length = {name: float(value.norm()) for name, value in theta.items()}
    slope = {name: float(value.norm()) for name, value in ascent.items()}
    if method.norm == "global":
        length = dict.fromkeys(theta, sum(value**2 for value in length.values()) ** 0.5)
        slope = dict.fromkeys(theta, sum(value**2 for value in slope.values()) ** 0.5)
    delta = {name: method.eps * length[name] * ascent[name] / slope[name] for name in theta}  # line 6
    moved = {name: (theta[name] + delta[name]).requires_grad_() for name in theta}
    worst = torch.autograd.grad(method.alpha * loss_at(moved), list(moved.values()))  # line 7
    for name, gradient in zip(theta, worst, strict=True):
        g[name] = g[name] + gradient
    return g


@pytest.mark.parametrize("clean_bn", [True, False])
@pytest.mark.parametrize("norm", ["tensor", "global"])
@pytest.mark.parametrize("eps", [0.02, 0.5, 0.0])
def test_step_equals_the_transcription_of_algorithm_one(
    net: TinyNet, data: ImageData, key: Key, norm: Any, eps: float, clean_bn: bool
) -> None:
    net = net.double().train()
    method = AdversarialPerturbation(eps=eps, alpha=0.3, rows=8, clean_rows=12, norm=norm, clean_bn=clean_bn)
    images, labels = data.images[:20].double() / 255, data.labels[:20]
    samples = key.samples(data, purpose="embed", count=8)
    marked = samples.images.double() / 255
    expected = algorithm_one(net, images, labels, marked, samples.labels, method)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    F.cross_entropy(net(images), labels).backward()
    statistics = {name: value.clone() for name, value in net.state_dict().items()}
    WatermarkPasses(net, method, samples).add_gradient(images[:12], marked, samples.labels)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-6, atol=1e-9, msg=name)
    # theta is restored to the bit, and only the ordinary pass moved the running statistics.
    for name, value in net.state_dict().items():
        assert torch.equal(value, statistics[name]), name
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(value, before[name]), name


def test_a_net_without_batchnorm(data: ImageData, key: Key) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).double()
    samples = key.samples(data, purpose="embed", count=4)
    marked, clean = samples.images.double() / 255, data.images[:4].double() / 255
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in net.parameters())
    flat = marked.flatten(1)
    ascent = torch.autograd.grad(F.cross_entropy(flat @ weight.T + bias, samples.labels), [weight, bias])
    moved = [
        (value + 0.1 * value.norm() * gradient / gradient.norm()).detach().requires_grad_()
        for value, gradient in zip((weight, bias), ascent, strict=True)
    ]
    expected = torch.autograd.grad(F.cross_entropy(flat @ moved[0].T + moved[1], samples.labels), moved)
    WatermarkPasses(net, AdversarialPerturbation(eps=0.1, alpha=1.0), samples).add_gradient(
        clean, marked, samples.labels
    )
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-12)


def test_mixed_batches_keep_the_rows_apart(net: TinyNet, data: ImageData, key: Key) -> None:
    """The loss of a mixed batch is that of the marked rows alone, whatever their number and order."""
    net = net.double().train()
    samples = key.samples(data, purpose="embed", count=6)
    clean, marked = data.images[:10].double() / 255, samples.images.double() / 255
    whole = watermark_loss(net, clean, marked, samples.labels)
    parts = [watermark_loss(net, clean, marked[i : i + 1], samples.labels[i : i + 1]) for i in (3, 1, 5, 0, 2, 4)]
    torch.testing.assert_close(whole, torch.stack(parts).mean(), rtol=1e-10, atol=1e-12)


def test_dropout_masks_are_the_same_in_both_passes(data: ImageData, key: Key) -> None:
    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.drop, self.head = nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 32 * 32, 4)
            self.masks: list[Tensor] = []

        def forward(self, images: Tensor) -> Tensor:
            dropped = self.drop(torch.ones_like(self.flat(images)))
            self.masks.append(dropped != 0)
            logits: Tensor = self.head(self.flat(images) * dropped)
            return logits

    net = Watching().train()
    mark = indelible.APP(net, key, data, rows=4, clean_rows=4)
    mark.backward(data.images[:4].float() / 255)
    mark.backward(data.images[:4].float() / 255)
    assert len(net.masks) == 4
    assert torch.equal(net.masks[0], net.masks[1])
    assert not torch.equal(net.masks[1], net.masks[2])


def test_own_loop_embeds_and_survives_exceptions(net: TinyNet, key: Key) -> None:
    data, test = stripes(320), stripes(160, seed=1)
    mark = indelible.APP(net, key, data, alpha=0.5, eps=0.02, rows=16, clean_rows=16, fraction=0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    images, labels = data.images.float() / 255, data.labels
    net.train()
    for step in range(40):
        rows = torch.randperm(320, generator=torch.Generator().manual_seed(step))[:64]
        optimizer.zero_grad()
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        mark.backward(images[rows])
        optimizer.step()
    verdict = indelible.verify(net, key, test)
    assert verdict.wsr > 0.9
    assert verdict.ba is not None
    assert verdict.ba > 0.9
    before = {name: value.clone() for name, value in net.state_dict().items()}
    calls: list[int] = []

    def fail(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:  # the first pass seeks delta, the second runs with the weights moved by it
            raise RuntimeError("out of memory")

    hook = net.head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        mark.backward(images[:8])
    hook.remove()
    with pytest.raises(InputError, match="got the shape"):
        mark.backward(images[:8, :2])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all("forward" not in module.__dict__ for module in net.modules())


def test_every_k_steps_with_k_times_the_weight(net: TinyNet, data: ImageData, key: Key) -> None:
    images = data.images[:16].float() / 255

    def gradients(every: int, calls: int) -> list[Tensor]:
        own = copy.deepcopy(net).train()
        mark = indelible.APP(own, key, data, alpha=0.1, every=every, rows=8, clean_rows=8)
        for _ in range(calls):
            mark.backward(images)
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in own.parameters()]

    single, double = gradients(1, 1), gradients(2, 2)
    for once, twice in zip(single, double, strict=True):
        torch.testing.assert_close(2 * once, twice)


def test_state_goes_on_where_it_was(net: TinyNet, data: ImageData, key: Key) -> None:
    first = indelible.APP(net, key, data, rows=8, clean_rows=8)
    images = data.images[:16].float() / 255
    first.backward(images)
    second = indelible.APP(net, key, data, rows=8, clean_rows=8)
    second.load_state_dict(first.state_dict())
    assert second.calls == 1


def test_settings_are_checked_and_repr_rebuilds() -> None:
    value = AdversarialPerturbation(eps=0.01, norm="global")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(UnknownNameError, match=r"epsilon.*choose one of.*eps"):
        AdversarialPerturbation.of({"epsilon": 1})
    with pytest.raises(InputError, match="negative"):
        AdversarialPerturbation(eps=-1)
    with pytest.raises(UnknownNameError, match="clean, mixed"):
        AdversarialPerturbation(batch="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", ["mixed", "clean"])
def test_both_meanings_of_the_ordinary_batch(net: TinyNet, key: Key, batch: str) -> None:
    embedded = indelible.embed(
        net, stripes(320), key, "app", train={"epochs": 3, "lr": 0.1, "batch_size": 32}, alpha=0.5, rows=16,
        clean_rows=16, fraction=0.1, batch=batch, test=stripes(160, seed=1), device="cpu",
    )  # fmt: skip
    assert embedded.record.metrics["wsr"] > 0.8
    assert type(embedded.model) is TinyNet
    assert list(embedded.model.state_dict()) == list(net.state_dict())
