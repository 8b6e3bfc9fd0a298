"""The cheaper watermark passes against references written out, in double precision, and what they count and keep."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.mixing import MarkedBatches
from indelible.embedding.watermark_passes import WatermarkPasses
from indelible.keys.key import Key
from indelible.nn.clean_batchnorm import clean_statistics
from indelible.nn.layers import perturbable_parameters
from tests.conftest import TinyNet, stripes
from tests.values import method_value

EPS, ALPHA = 0.3, 0.2


def rows_of(data: ImageData, key: Key) -> tuple[Tensor, Tensor, Tensor]:
    """Return clean rows, marked rows and their labels, in double precision."""
    samples = key.samples(data, purpose="embed", count=8)
    return data.images[:8].double() / 255, samples.images.double() / 255, samples.labels


def loss_of(net: nn.Module, clean: Tensor, marked: Tensor, labels: Tensor) -> Tensor:
    with clean_statistics(net, clean=len(clean), rows=len(clean) + len(marked)):
        return F.cross_entropy(net(torch.cat([clean, marked]))[len(clean) :], labels)


def ascent_of(net: nn.Module, clean: Tensor, marked: Tensor, labels: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss_of(net, clean, marked, labels), perturbable_parameters(net)))


def worst_gradient(net: nn.Module, ascent: list[Tensor], clean: Tensor, marked: Tensor, labels: Tensor) -> list[Tensor]:
    """Return alpha times the gradient at theta + eps ||theta|| g / ||g||, tensor by tensor."""
    moved = copy.deepcopy(net)
    weights = perturbable_parameters(moved)
    with torch.no_grad():
        for weight, gradient in zip(weights, ascent, strict=True):
            weight.add_(EPS * weight.norm() * gradient / gradient.norm())
    return list(torch.autograd.grad(ALPHA * loss_of(moved, clean, marked, labels), weights))


def passes_of(net: nn.Module, data: ImageData, key: Key, **settings: Any) -> WatermarkPasses:
    method = AdversarialPerturbation(eps=EPS, alpha=ALPHA, rows=8, clean_rows=8, **settings)
    return WatermarkPasses(net, method, MarkedBatches(key.samples(data, purpose="embed", count=8), method.rows))


def gradients(net: nn.Module) -> list[Tensor]:
    found = [weight.grad for weight in perturbable_parameters(net) if weight.grad is not None]
    assert len(found) == len(perturbable_parameters(net))
    return found


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-10)


def test_which_steps_have_passes_and_how_many_images(net: TinyNet, data: ImageData, key: Key) -> None:
    """From step 3 on every second step passes 8 + 6 rows twice."""
    method = AdversarialPerturbation(rows=8, clean_rows=6, every=2)
    passes = WatermarkPasses(
        net, method, MarkedBatches(key.samples(data, purpose="embed", count=8), method.rows), first=3
    )
    assert [passes.due(number) for number in range(8)] == [False, False, False, True, False, True, False, True]
    assert [passes.images(number, 16) for number in range(8)] == [0, 0, 0, 28, 0, 28, 0, 28]
    assert passes.images(3, 5) == 2 * (8 + 5)  # the last batch of an epoch has fewer rows
    assert method.extra_rows() == 28 / 2
    assert AdversarialPerturbation().extra_rows() == 256
    assert AdversarialPerturbation(eps=0.0, after=0.25).extra_rows() == 0.75 * 128
    assert AdversarialPerturbation(clean_bn=False).extra_rows() == 128


def test_the_first_step_with_passes() -> None:
    """Three quarters of so many steps, and the last one at the latest: no training is without passes."""
    late = AdversarialPerturbation(after=0.75)
    assert [late.first_step(steps) for steps in (0, 1, 2, 4, 5, 400)] == [0, 0, 1, 3, 4, 300]
    assert AdversarialPerturbation().first_step(400) == 0


def test_late_passes_in_somebody_elses_loop(net: TinyNet, data: ImageData, key: Key) -> None:
    images = data.images[:16].float() / 255
    mark = indelible.APP(
        net.train(), key, data, method=method_value("app", key, "paper", rows=8, clean_rows=8, after=0.5), steps=5
    )
    losses = [float(mark.backward(images)) for _ in range(5)]
    assert [loss > 0 for loss in losses] == [False, False, False, True, True]
    with pytest.raises(InputError, match="steps=31200"):
        indelible.APP(net, key, data, method=method_value("app", key, "paper", after=0.5))


def test_fewer_passes_weigh_more(net: TinyNet, data: ImageData, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every second step of the last quarter of a training: eight times the gradient of a pass in every step."""
    net = net.double().train()
    rows = rows_of(data, key)
    expected = [8 * gradient for gradient in worst_gradient(net, ascent_of(net, *rows), *rows)]
    passes = passes_of(net, data, key, every=2, after=0.75)
    monkeypatch.setattr(passes.marked, "batch", lambda *_: rows[1:])
    passes.backward(rows[0], 0)
    assert_same(gradients(net), expected)


def test_late_passes_in_a_training_run(net: TinyNet, key: Key) -> None:
    """Of 2 epochs of 10 steps the last 10 pass 8 + 8 rows twice."""
    embedded = indelible.embed(
        net, stripes(320), key, method_value("app", key, "paper", rows=8, clean_rows=8, after=0.5),
        scale="paper", train={"epochs": 2, "batch_size": 32},
        device="cpu",
    )  # fmt: skip
    assert embedded.record.images == 2 * 320 + 10 * 32


def test_compiled_networks_have_clean_statistics_too(net: TinyNet, data: ImageData, key: Key) -> None:
    """A graph that was compiled for the ordinary pass must not serve the watermark passes."""
    net, images = net.double().train(), data.images[:16].double() / 255
    plain = copy.deepcopy(net)
    compiled: Any = torch.compile(net, backend="eager")
    for model, bare in ((plain, plain), (compiled, net)):
        for number in range(2):
            F.cross_entropy(model(images), data.labels[:16]).backward()
            passes_of(model, data, key).backward(images, number)
        assert bare.features[1].num_batches_tracked == 2
    assert_same(gradients(net), gradients(plain))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"after": 1.0}, r"after must lie in \[0, 1\), got 1\."),
        ({"after": -0.1}, r"after must lie in \[0, 1\), got -0\.1"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        AdversarialPerturbation(**wrong)
