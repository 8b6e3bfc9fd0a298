"""CW: which level comes when, the gradient of an epoch against a straight transcription, its cost."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.seeding import generator
from indelible.data.images import ImageData
from indelible.embedding.cw import CertifiedTraining, NoisyPasses, levels_at
from indelible.keys.key import Key
from indelible.nn.noisy_gradient import gaussian, trainable
from tests.conftest import TinyNet, stripes
from tests.values import method_value


@pytest.mark.parametrize(("steps", "levels", "batches"), [(10, 3, 1), (5, 21, 1), (7, 3, 4), (1, 21, 2), (313, 21, 1)])
def test_each_level_once_an_epoch_spread_evenly(steps: int, levels: int, batches: int) -> None:
    dealt = [list(levels_at(place, steps, levels, batches)) for place in range(steps)]
    assert [index for indices in dealt for index in indices] == list(range(levels * batches))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    for place, indices in enumerate(dealt):
        assert all(index * steps // (levels * batches) == place for index in indices)


def test_by_hand() -> None:
    """Three levels over ten steps: at steps 0, 3 and 6."""
    assert [list(levels_at(place, 10, 3)) for place in range(10)] == [[0], [], [], [1], [], [], [2], [], [], []]


def test_an_epoch_equals_the_transcription(net: TinyNet, data: ImageData, key: Key) -> None:
    """g = 1/J sum_j 1/k sum_i grad L(theta + sigma_j G_ji, B_w), with theta fixed over the epoch."""
    net = net.double().train()
    method = CertifiedTraining(levels=3, step=0.1, draws=2, start_epoch=1, images=5, rows=4, weight=0.7)
    samples = key.samples(data, purpose="embed", count=8)
    passes = NoisyPasses(method, method.noisy_rows(key, samples, "none", None, 3), steps=4, seed=3)
    like = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    before = copy.deepcopy(net.state_dict())
    for number in range(4):  # the first epoch has no noise
        assert passes.backward(net, like, number) == 0
    assert all(weight.grad is None for weight in net.parameters())
    for number in range(4, 8):
        passes.backward(net, like, number)
    rows = torch.randperm(5, generator=generator(3, "watermark", 1))[:4]
    images, labels = (samples.images[rows].float() / 255).double(), samples.labels[rows]
    expected = [torch.zeros_like(weight) for weight in net.parameters()]
    for level in range(3):
        for draw in range(2):
            other = copy.deepcopy(net)
            noise = gaussian(trainable(other), 0.1 * level, generator(3, "weight noise", 1, level, draw))
            with torch.no_grad():
                for weight, part in zip(other.parameters(), noise, strict=True):
                    weight.add_(part)
            gradients = torch.autograd.grad(F.cross_entropy(other(images), labels), list(other.parameters()))
            for so_far, gradient in zip(expected, gradients, strict=True):
                so_far.add_(0.7 * gradient / 6)
    for weight, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-8, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_own_loop_and_its_state(net: TinyNet, key: Key) -> None:
    data = stripes(64)
    settings: dict[str, Any] = {"levels": 2, "draws": 2, "start_epoch": 0, "rows": 4, "fraction": 0.2}
    images = data.images[:8].float() / 255

    def gradients(calls: int, skip: int) -> list[Tensor]:
        own = copy.deepcopy(net).train()
        mark = indelible.CW(own, key, data, method=method_value("cw", key, "paper", **settings), steps=4)
        mark.load_state_dict({"calls": skip})
        for _ in range(calls):
            assert mark.backward(images).isfinite()
        assert mark.state_dict() == {"calls": skip + calls}
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in own.parameters()]

    whole, first, second = gradients(4, 0), gradients(1, 0), gradients(1, 2)
    for total, one, other in zip(whole, first, second, strict=True):
        torch.testing.assert_close(total, one + other)


def test_counted_passes_and_settings(net: TinyNet, key: Key) -> None:
    """Two epochs of two steps; noise in the second: level 0 once, levels 1 and 2 twice, four rows each."""
    embedded = indelible.embed(
        net, stripes(64), key,
        method_value("cw", key, "paper", levels=3, draws=2, rows=4, start_epoch=1, fraction=0.1), scale="paper",
        train={"epochs": 2, "batch_size": 32}, device="cpu",
    )  # fmt: skip
    assert embedded.record.images == 2 * 64 + 4 * (1 + 2 + 2)
    value = CertifiedTraining(draws=5)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    assert (value.levels, value.step, value.start_epoch, value.images, value.rows) == (21, 0.05, 6, 100, 64)
    with pytest.raises(InputError, match="at least 1"):
        CertifiedTraining(draws=0)
    with pytest.raises(InputError, match=r"step must be at least 0, got -0\.1"):
        CertifiedTraining(step=-0.1)


def test_settings_of_an_earlier_record_are_read() -> None:
    assert CertifiedTraining.of({"together": 1, "draws": 7}) == CertifiedTraining(draws=7)
    with pytest.raises(UnknownNameError, match="together"):
        CertifiedTraining.of({"together": 2})
