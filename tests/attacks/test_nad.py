"""NAD: attention maps by hand, the loss against a slow reference, schedules of both protocols."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from indelible.attacks import NeuralAttentionDistillation
from indelible.attacks.nad import AttentionTransfer, attention_map
from indelible.attacks.removal_attack import Attacked, attack
from indelible.base.seeding import generator
from indelible.data.images import ImageData
from indelible.nn.taps import stage_outputs
from indelible.train.evaluate import accuracy
from indelible.train.objective import Step
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = NeuralAttentionDistillation()
    assert (value.power, value.beta, value.teacher_epochs, value.epochs) == (2.0, None, 10, 10)
    assert (value.lr, value.every, value.gamma, value.momentum, value.weight_decay) == (0.02, 2, 0.1, 0.9, 1e-4)
    assert value.batch_size == 64
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_attention_of_a_2x2_map() -> None:
    """Channels [[1, 2], [0, -2]] and [[0, 2], [0, 1]]: squares sum to [1, 8, 0, 5], whose norm is sqrt(90)."""
    features = torch.tensor([[[[1.0, 2.0], [0.0, -2.0]], [[0.0, 2.0], [0.0, 1.0]]]])
    expected = [value / math.sqrt(90) for value in (1, 8, 0, 5)]
    assert attention_map(features)[0].tolist() == pytest.approx(expected, abs=1e-6)
    # p = 1: absolute values sum to [1, 4, 0, 3], whose norm is sqrt(26).
    assert attention_map(features, 1.0)[0].tolist() == pytest.approx(
        [value / math.sqrt(26) for value in (1, 4, 0, 3)], abs=1e-6
    )
    # The same numbers as four tokens of width two.
    tokens = features.flatten(2).transpose(1, 2)
    assert attention_map(tokens)[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert attention_map(torch.zeros(1, 2, 2, 2)).tolist() == [[0.0] * 4]


def test_a_step_equals_the_slow_reference(net: TinyNet) -> None:
    """Cross-entropy plus beta times the mean squared difference of maps, features cut out of the layers by hand."""
    data = stripes(8)
    images, labels = data.images.float() / 255, data.labels
    torch.manual_seed(1)
    student, teacher = copy.deepcopy(net).train(), TinyNet().train()
    stages = stage_outputs(student, images)
    assert [name for name, _ in stages] == ["features.2", "features.5", "features.6"]
    objective = AttentionTransfer(student, teacher, stages, beta=30.0, power=2.0)
    loss = objective.backward(Step(student, images, labels, 0, 0, lambda value: value.backward()))
    assert teacher.training
    assert all(weight.grad is None for weight in teacher.parameters())
    assert objective.passes(8) == 16

    twin, other = copy.deepcopy(net).train(), copy.deepcopy(teacher).eval()
    expected = F.cross_entropy(twin(images), labels)
    twin_again = copy.deepcopy(net).train()
    for cut in (3, 6, 7):
        own, wanted = _first(twin_again, cut)(images), _first(other, cut)(images)
        maps = []
        for features in (own, wanted):
            rows = []
            for image in features:
                active = sum(channel**2 for channel in image)
                assert isinstance(active, torch.Tensor)
                rows.append(active / ((active**2).sum().sqrt() + 1e-6))
            maps.append(torch.stack(rows))
        expected = expected + 30.0 * ((maps[0] - maps[1].detach()) ** 2).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def _first(net: TinyNet, layers: int) -> nn.Sequential:
    return nn.Sequential(*list(net.features)[:layers])


@pytest.mark.parametrize(
    ("protocol", "beta", "rates"), [("sound", 1500.0, [0.02, 0.02, 0.002]), ("paper", 2000.0, [0.02, 0.02, 0.02])]
)
def test_recipes(net: TinyNet, data: ImageData, protocol: str, beta: float, rates: list[float]) -> None:
    given: dict[str, Any] = {"beta": 1500.0} if protocol == "sound" else {}
    attacked = attack(
        net, data, attack_value("nad", protocol=protocol, epochs=3, teacher_epochs=3, **given), device="cpu"
    )
    assert lrs(attacked, "teacher") == pytest.approx([0.02, 0.02, 0.002])  # the teacher's rate drops in both
    assert lrs(attacked, f"distillation, beta {beta:g}") == pytest.approx(rates)
    assert attacked.record.metrics["beta"] == beta
    assert attacked.record.metrics["stages"] == ["features.2", "features.5", "features.6"]
    assert attacked.record.images == 3 * 320 + 3 * 2 * 320


def test_the_first_beta_within_the_budget_is_taken(net: TinyNet, data: ImageData) -> None:
    """Of 320 images 32 are held out: looked at before, and after the one student."""
    attacked = attack(net, data, attack_value("nad", epochs=1, teacher_epochs=1, ba_drop=1.0), device="cpu")
    found = attacked.record.metrics
    assert (found["beta"], list(found["tried"])) == (1500.0, ["1500"])
    assert attacked.record.images == 288 + 2 * 288 + 2 * 32


def test_a_beta_that_costs_too_much_is_divided_by_ten(net: TinyNet, data: ImageData) -> None:
    """A budget that nothing meets: all are tried from the same start, and the most accurate one is the model."""
    attacked = attack(net, data, attack_value("nad", epochs=1, teacher_epochs=1, ba_drop=-1.0), device="cpu")
    found = attacked.record.metrics
    assert list(found["tried"]) == ["1500", "150", "15"]
    # Each of them alone, on the images that are fitted to; of equal accuracies the strongest wins.
    order = torch.randperm(320, generator=generator(0, "held-out"))
    held, fitting = data.subset(order[:32]), data.subset(order[32:].sort().values)
    alone = {beta: attack_value("nad", epochs=1, teacher_epochs=1, beta=beta) for beta in (1500.0, 150.0, 15.0)}
    kept = {beta: accuracy(attack(net, fitting, one, device="cpu").model, held) for beta, one in alone.items()}
    assert found["tried"] == {f"{beta:g}": share for beta, share in kept.items()}
    best = max(kept.values())
    assert found["beta"] == next(beta for beta, share in kept.items() if share == best)
    assert attacked.record.images == 288 + 3 * 2 * 288 + 4 * 32
    assert [row["phase"] for row in attacked.history] == [
        "teacher",
        *(f"distillation, beta {b}" for b in found["tried"]),
    ]
    assert accuracy(attacked.model, held) == best


def test_several_processes_can_share_it_where_nothing_is_chosen() -> None:
    for value in (NeuralAttentionDistillation(beta=10.0), NeuralAttentionDistillation(protocol="paper")):
        assert value.why_one_process() == ""
    assert "tries several strengths" in NeuralAttentionDistillation().why_one_process()


def lrs(attacked: Attacked, phase: str) -> list[float]:
    return [row["lr"] for row in attacked.history if row["phase"] == phase]
