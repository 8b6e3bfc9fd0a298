"""MCR: the paper's settings, the objective's gradient by hand, statistics for every t, the protocols, resuming."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks import ModeConnectivityRepair, attack
from indelible.attacks.mcr import AlongCurve
from indelible.base.errors import InputError
from indelible.base.progress import silenced
from indelible.data.images import ImageData
from indelible.nn.curves import BezierCurve
from indelible.train.objective import Step
from tests.conftest import TinyNet
from tests.values import attack_value

QUICK: dict[str, Any] = {"end_epochs": 1, "epochs": 2, "batch_size": 64, "points": 5}


def test_the_papers_settings() -> None:
    value = ModeConnectivityRepair()
    assert (value.end_epochs, value.end_lr, value.end_every, value.end_gamma) == (50, 0.05, 10, 0.1)
    assert (value.epochs, value.lr, value.clip, value.curve_decay, value.share) == (100, 0.01, 5.0, 1e-4, 0.5)
    assert (value.t, value.points, value.ba_drop) == (None, 21, 0.02)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def backward(loss: Tensor) -> None:
    loss.backward()


def test_gradient_of_a_step_by_hand() -> None:
    """Two weights, both ends at 1, input 0: the loss has no gradient, and what is left is decay * 2 t (1 - t) * 1."""
    layer = nn.Linear(1, 2, bias=False)
    nn.init.ones_(layer.weight)
    curve = BezierCurve(layer, layer)
    objective = AlongCurve(curve, seed=3, decay=0.5, stale=False)
    t = objective.t(7)
    drawn = sorted(objective.t(number) for number in range(2000))
    # Kolmogorov-Smirnov: 2,000 uniform draws lie this far from the diagonal once in a thousand times.
    assert max(abs(value - (rank + 0.5) / 2000) for rank, value in enumerate(drawn)) < 1.95 / 2000**0.5
    assert len(set(drawn)) == 2000
    assert AlongCurve(curve, seed=4, decay=0.5, stale=False).t(7) != t
    loss = objective.backward(Step(curve, torch.zeros(1, 1), torch.tensor([0]), 7, 0, backward))
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    torch.testing.assert_close(curve.bend.get_parameter("weight").grad, torch.full((2, 1), t * (1 - t)))


def test_points_are_drawn_evenly() -> None:
    objective = AlongCurve(BezierCurve(TinyNet(), TinyNet()), seed=0, decay=0.0, stale=False)
    drawn = torch.tensor([objective.t(number) for number in range(2000)])
    assert abs(float(drawn.mean()) - 0.5) < 0.02
    assert abs(float(drawn.std()) - 12**-0.5) < 0.02


@pytest.mark.parametrize("stale", [True, False])
def test_the_slip_of_the_evaluation_mode(net: TinyNet, stale: bool) -> None:
    """From the second epoch on, statistics of a stale curve stay what the first epoch left."""
    curve = BezierCurve(net, net)
    objective = AlongCurve(curve, seed=0, decay=0.0, stale=stale)
    seen = []
    for epoch in range(3):
        curve.train()
        objective.backward(Step(curve, torch.rand(4, 3, 32, 32), torch.arange(4), epoch, epoch, backward))
        seen.append(copy.deepcopy(curve.bend.get_buffer("features.1.running_mean")))
    assert not torch.equal(seen[0], net.get_buffer("features.1.running_mean"))
    assert torch.equal(seen[1], seen[0]) == stale
    assert torch.equal(seen[2], seen[0]) == stale


def test_sound_takes_the_highest_inner_point_within_the_budget(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("mcr", ba_drop=1.0, **QUICK), device="cpu")
    curve = attacked.curve
    assert curve is not None
    assert curve.values == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert curve.chosen == 0.75
    assert attacked.record.metrics["curve"]["chosen"] == 0.75
    again = curve.build(0.75)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in attacked.model.state_dict().items())
    # 288 images to fit: an epoch on one half, two on the other, statistics for five points, and
    # the 32 held-out images for five points and the stolen model.
    assert attacked.record.images == 144 + 2 * 144 + 5 * 144 + 6 * 32


def test_statistics_belong_to_the_point(net: TinyNet, data: ImageData) -> None:
    """At t = 0 the weights are the stolen ones, and the statistics those of the curve's own images."""
    attacked = attack(net, data, attack_value("mcr", **QUICK), device="cpu")
    assert attacked.curve is not None
    start = attacked.curve.build(0.0)
    assert all(torch.equal(value, dict(net.named_parameters())[name]) for name, value in start.named_parameters())
    reached = net.features[0](data.images.float() / 255)
    torch.testing.assert_close(
        start.get_buffer("features.1.running_mean"), reached.mean((0, 2, 3)), rtol=0.05, atol=0.01
    )


def test_paper_takes_its_t(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("mcr", protocol="paper", **QUICK), device="cpu")
    assert attacked.curve is not None
    assert attacked.curve.chosen == 0.9
    assert attacked.curve.values == (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    assert not any(
        torch.equal(value, dict(net.named_parameters())[name]) for name, value in attacked.model.named_parameters()
    )


def test_a_test_set_only_when_named_and_only_in_the_paper_protocol(net: TinyNet, data: ImageData) -> None:
    with pytest.raises(InputError, match="repeat an error of the authors"):
        ModeConnectivityRepair(statistics="cifar10")
    with pytest.raises(InputError, match="share"):
        ModeConnectivityRepair(share=1.0)
    with pytest.raises(InputError, match="at least three"):
        attack(net, data.subset(torch.arange(2)), "mcr", device="cpu")


def test_resumes_to_the_same_bits(net: TinyNet, data: ImageData, tmp_path: Path) -> None:
    """The end point is not trained again after a crash in the second phase."""
    whole = attack(net, data, attack_value("mcr", **QUICK), device="cpu")

    def crash(self: AlongCurve, step: Step) -> Tensor:
        raise KeyboardInterrupt

    original = AlongCurve.backward
    AlongCurve.backward = crash  # type: ignore[method-assign]
    try:
        with silenced(), pytest.raises(KeyboardInterrupt):
            attack(net, data, attack_value("mcr", **QUICK), device="cpu", folder=tmp_path)
    finally:
        AlongCurve.backward = original  # type: ignore[method-assign]
    assert (tmp_path / "phase-end-point.safetensors").exists()
    resumed = attack(net, data, attack_value("mcr", **QUICK), device="cpu", folder=tmp_path)
    assert all(torch.equal(value, whole.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())
    assert [row["phase"] for row in resumed.history] == ["end-point", "curve", "curve"]
