"""Neural Cleanse: MAD and stamping by hand, lambda against a slow reference, folding, a planted trigger, resuming."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks import neural_cleanse
from indelible.attacks.neural_cleanse import (
    NeuralCleanse,
    PatchSearch,
    State,
    Triggers,
    anomaly_indices,
    next_costs,
    stamp,
    stamp_gradients,
    suspicious,
)
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from tests.conftest import TinyNet, stripes

QUICK = NeuralCleanse(epochs=2, batch_size=16, round_images=64, patience=1, stop_patience=2, success=0.5)


def test_anomaly_index_by_hand() -> None:
    """Norms 2 8 10 12 14: median 10, distances 8 2 0 2 4 with median 2; index of 2 is 8 / (1.4826 * 2) = 2.698."""
    norms = torch.tensor([10.0, 2.0, 12.0, 8.0, 14.0])
    torch.testing.assert_close(anomaly_indices(norms), torch.tensor([0.0, 8.0, 2.0, 2.0, 4.0]) / (2 * 1.4826))
    assert suspicious(norms) == [1]


def test_anomaly_index_of_an_even_number_by_hand() -> None:
    """1 7 9 20: the median is 8 and the distances 7 1 1 12 with median 4; with lower medians 7, 6 0 2 13 and 2."""
    norms = torch.tensor([1.0, 7.0, 9.0, 20.0])
    torch.testing.assert_close(anomaly_indices(norms) * 1.4826, torch.tensor([7.0, 1.0, 1.0, 12.0]) / 4)
    torch.testing.assert_close(anomaly_indices(norms, lower=True) * 1.4826, torch.tensor([6.0, 0.0, 2.0, 13.0]) / 2)
    assert suspicious(norms) == []
    assert suspicious(norms, lower=True) == [0]


def test_large_norms_and_equal_norms_are_not_suspicious() -> None:
    assert suspicious(torch.tensor([10.0, 11.0, 9.0, 10.0, 50.0])) == []
    assert suspicious(torch.full((6,), 3.0)) == []
    assert suspicious(torch.tensor([10.0, 1.0, 11.0, 9.0, 0.5, 10.0, 11.0, 9.0])) == [4, 1]


def test_stamp_by_hand() -> None:
    """One pixel: image 0.2, masks 0 and 1/4 and 1, patterns 1: 0.2, 0.15 + 0.25 = 0.4, and 1."""
    images = torch.full((2, 3, 1, 1), 0.2)
    masks = torch.tensor([0.0, 0.25, 1.0]).reshape(3, 1, 1, 1)
    stamped = stamp(images, masks, torch.ones(3, 3, 1, 1))
    assert stamped.shape == (6, 3, 1, 1)
    torch.testing.assert_close(stamped[:, 0, 0, 0], torch.tensor([0.2, 0.2, 0.4, 0.4, 1.0, 1.0]))


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_of_a_stamp_equal_differentiation(channels: int) -> None:
    """Two reductions give what differentiating through the stamped images gives, for both kinds of masks."""
    random = torch.Generator().manual_seed(0)
    images, masks, patterns, upstream = (
        torch.rand(shape, generator=random, dtype=torch.float64)
        for shape in ((5, 3, 4, 6), (2, channels, 4, 6), (2, 3, 4, 6), (10, 3, 4, 6))
    )
    stamped = stamp(images, masks.requires_grad_(), patterns.requires_grad_())
    wanted = torch.autograd.grad(stamped, [masks, patterns], upstream)
    with torch.no_grad():
        found = stamp_gradients(upstream, images, masks, patterns)
    torch.testing.assert_close(found, wanted)


class Slow:
    """The rule for one class in plain Python, one sentence of the publication at a time."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.set = self.up = self.down = self.stale = 0
        self.went_up = self.went_down = self.stopped = False
        self.best = self.stop_best = math.inf

    def round(self, reached: bool, norm: float) -> None:
        if reached and norm < self.best:
            self.best = norm
        if self.best < math.inf:
            self.stale = self.stale + 1 if self.best >= self.stop_best else 0
        self.stop_best = min(self.best, self.stop_best)
        if self.went_up and self.went_down and self.stale >= 4:
            self.stopped = True
        if self.cost == 0.0 and reached:
            self.set += 1
            if self.set >= 2:
                self.cost, self.up, self.down, self.went_up, self.went_down = 1e-3, 0, 0, False, False
        else:
            self.set = 0
        self.up, self.down = (self.up + 1, 0) if reached else (0, self.down + 1)
        if self.up >= 2:
            self.up, self.cost, self.went_up = 0, self.cost * 2.0, True
        elif self.down >= 2:
            self.down, self.cost, self.went_down = 0, self.cost / 2.0**1.5, True


def test_lambda_against_the_slow_reference() -> None:
    """Twenty classes, a hundred rounds of random success and norms."""
    chance = random.Random(0)
    search = PatchSearch(NeuralCleanse(), TinyNet(20), stripes(20, 4), seed=0)
    names = neural_cleanse._COSTS
    state: State = {name: search.state[name][:1].repeat(20) for name in names}
    slow = [Slow() for _ in range(20)]
    for _ in range(100):
        reached = [chance.random() < 0.6 for _ in slow]
        norms = [chance.uniform(1, 100) for _ in slow]
        better = torch.tensor(reached) & (torch.tensor(norms) < state["best"])
        state["best"] = torch.where(better, torch.tensor(norms), state["best"])
        state = next_costs(state, torch.tensor(reached), NeuralCleanse(patience=2, stop_patience=4))
        for reference, done, norm in zip(slow, reached, norms, strict=True):
            reference.round(done, norm)
        for name in names:
            wanted = torch.tensor([getattr(reference, name) for reference in slow])
            torch.testing.assert_close(state[name], wanted.to(state[name].dtype), msg=name)
    assert state["stopped"].any()


@pytest.mark.parametrize("variant", ["original", "paper"])
def test_folded_classes_equal_class_by_class(net: TinyNet, data: ImageData, variant: str) -> None:
    """One pass for all four classes, one for each, and one for three and one: the same patches."""
    common: dict[str, Any] = {"variant": variant, "epochs": 2, "batch_size": 16, "round_images": 64, "patience": 1}
    found = [PatchSearch(NeuralCleanse(**common, rows=rows), net, data, seed=1).run() for rows in (512, 1, 48)]
    for other in found[1:]:
        torch.testing.assert_close(found[0].masks, other.masks, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found[0].patterns, other.patterns, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found[0].success, other.success)
        assert found[0].images == other.images == 2 * 320 * 4
    assert found[0].masks.shape == (4, 1 if variant == "original" else 3, 32, 32)


class Planted(nn.Module):
    """The brightest bar decides, unless the corner of 3 x 3 pixels is white: then it is class 2."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, images: Tensor) -> Tensor:
        bars = images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)
        corner = images[:, :, 1:4, 27:30].mean((1, 2, 3))
        return self.scale * (bars + torch.eye(4)[2] * 0.6 * corner[:, None] ** 4)


def test_recovers_a_planted_trigger() -> None:
    """Of the recovered mask, most lies on the nine pixels; the class stands out, and its pattern is white there."""
    found = PatchSearch(NeuralCleanse(epochs=75, batch_size=16, round_images=64), Planted(), stripes(128), seed=0).run()
    mask = found.masks[2, 0]
    inside = float(mask[1:4, 27:30].sum() / mask.sum())
    whole = mask > 0.5
    planted = torch.zeros(32, 32, dtype=torch.bool)
    planted[1:4, 27:30] = True
    overlap = float((whole & planted).sum()) / float((whole | planted).sum())
    assert int(found.norms().argmin()) == 2
    assert suspicious(found.norms()) == [2]
    assert float(found.success[2]) >= 0.99
    assert inside > 0.9
    assert overlap > 0.9
    assert float(found.patterns[2][:, planted & whole].mean()) > 0.9


def test_resumes_to_the_same_bits(
    net: TinyNet, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PatchSearch(QUICK, net, data, seed=1).run()
    monkeypatch.setattr(neural_cleanse, "_SAVE_SECONDS", -1.0)
    original, rounds = PatchSearch._advance, []

    def crash(self: PatchSearch) -> None:
        rounds.append(1)
        if len(rounds) == 4:
            raise KeyboardInterrupt
        original(self)

    monkeypatch.setattr(PatchSearch, "_advance", crash)
    with pytest.raises(KeyboardInterrupt):
        PatchSearch(QUICK, net, data, seed=1, folder=tmp_path).run()
    resumed = PatchSearch(QUICK, net, data, seed=1, folder=tmp_path).run()
    same(whole, resumed)
    before = len(rounds)
    same(whole, PatchSearch(QUICK, net, data, seed=1, folder=tmp_path).run())
    assert len(rounds) == before
    with pytest.raises(InputError, match="other settings"):
        PatchSearch(QUICK, net, data, seed=2, folder=tmp_path).run()


def same(one: Triggers, other: Triggers) -> None:
    assert torch.equal(one.masks, other.masks)
    assert torch.equal(one.patterns, other.patterns)
    assert one.images == other.images


def test_the_model_is_left_alone(net: TinyNet, data: ImageData) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    PatchSearch(QUICK, net, data, seed=1).run()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training
    assert all(weight.requires_grad for weight in net.parameters())


def test_a_class_that_stops_leaves_the_batch(data: ImageData) -> None:
    """The planted class and easy ones stop early: fewer images are passed than the budget allows."""
    settings = NeuralCleanse(epochs=40, round_images=64, batch_size=16, patience=1, stop_patience=2)
    assert PatchSearch(settings, Planted(), data, seed=0).run().images < 40 * 320 * 4


def test_refusals() -> None:
    with pytest.raises(InputError, match="variant"):
        NeuralCleanse(variant="fast")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rows and patience must be at least 1"):
        NeuralCleanse(epochs=0)
