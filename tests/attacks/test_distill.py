"""Distillation: losses by hand, nothing of the stolen weights or of the labels, another architecture, resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from indelible.attacks import Extraction, attack
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.models import build_model
from indelible.train import Schedule, TrainSettings, fit
from indelible.train.evaluate import accuracy, predict
from indelible.train.objective import Distillation, distillation_loss
from tests.conftest import TinyNet
from tests.values import attack_value

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 64}


def test_settings() -> None:
    value = Extraction()
    assert (value.labels, value.temperature, value.architecture, value.epochs, value.lr) == (
        "soft",
        4.0,
        None,
        100,
        0.1,
    )
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_losses_by_hand() -> None:
    """Teacher (ln 9, 0) / 1 is (0.9, 0.1), the student even: KL = 0.9 ln 1.8 + 0.1 ln 0.2 = 0.3681; hard: ln 2.

    At T = 2 with logits doubled the probabilities are the same, and the loss four times as large.
    """
    teacher, student = torch.tensor([[9.0, 1.0]]).log(), torch.zeros(1, 2)
    wanted = 0.9 * torch.tensor(1.8).log() + 0.1 * torch.tensor(0.2).log()
    torch.testing.assert_close(distillation_loss(student, teacher, hard=False, temperature=1.0), wanted)
    torch.testing.assert_close(distillation_loss(student, 2 * teacher, hard=False, temperature=2.0), 4 * wanted)
    torch.testing.assert_close(distillation_loss(student, teacher, hard=True, temperature=1.0), torch.tensor(2.0).log())
    assert float(distillation_loss(teacher, teacher, hard=False, temperature=3.0)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("labels", ["soft", "hard"])
def test_the_student_learns_from_answers_only(net: TinyNet, data: ImageData, test_data: ImageData, labels: str) -> None:
    """Labels of the attacker's images are shuffled: the student agrees with the teacher all the same."""
    settings = TrainSettings(epochs=4, lr=0.1, batch_size=32, schedule=Schedule.one_cycle())
    fit(net, data, settings, seed=0, device="cpu")
    assert accuracy(net, test_data) > 0.9
    wrong = ImageData(data.images, data.labels.roll(1), data.classes, "wrong")
    extracted = attack(
        net, wrong, attack_value("distill", labels=labels, epochs=8, lr=0.05, batch_size=32), device="cpu"
    )
    agreement = (predict(extracted.model, test_data.images) == predict(net, test_data.images)).float().mean()
    assert float(agreement) > 0.8
    assert type(extracted.model) is TinyNet
    assert extracted.record.images == 2 * 8 * 320
    assert extracted.architecture is None


def test_another_architecture(net: TinyNet, data: ImageData) -> None:
    extracted = attack(net, data, attack_value("distill", architecture="resnet-w8", **QUICK), device="cpu")
    assert extracted.architecture == "resnet-w8"
    assert (
        extracted.model.state_dict().keys()
        == build_model("resnet-w8", classes=4, shape=(3, 32, 32)).state_dict().keys()
    )
    assert extracted.record.settings["method"]["architecture"] == "resnet-w8"


@pytest.mark.parametrize("labels", ["soft", "hard"])
@pytest.mark.parametrize("architecture", [None, "resnet-w8"])
def test_images_of_another_domain(net: TinyNet, data: ImageData, labels: str, architecture: str | None) -> None:
    """Images of seven classes copy a model of four: nothing reads their labels, and nothing is measured by them."""
    other = ImageData(255 - data.images, torch.arange(len(data)) % 7, tuple("abcdefg"), "another task")
    extracted = attack(
        net, other, attack_value("distill", labels=labels, architecture=architecture, **QUICK), device="cpu"
    )
    assert predict(extracted.model, data.images).max() < 4
    assert not any("accuracy_attacker" in row for row in extracted.history)
    same = attack(
        net, ImageData(other.images, other.labels * 0, other.classes, "no labels"),
        attack_value("distill", labels=labels, architecture=architecture, **QUICK), device="cpu",
    )  # fmt: skip
    for name, value in extracted.model.state_dict().items():
        assert torch.equal(value, same.model.state_dict()[name]), name
    with pytest.raises(InputError, match="4 outputs, but 'another task' has 7 classes"):
        attack(net, other, "ft", device="cpu")


def test_resumes_to_the_same_bits(
    net: TinyNet, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = attack(net, data, attack_value("distill", **QUICK), device="cpu")
    original, calls = Distillation.backward, []

    def crash(self: Distillation, step: object) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return original(self, step)  # type: ignore[arg-type]

    monkeypatch.setattr(Distillation, "backward", crash)
    with pytest.raises(KeyboardInterrupt):
        attack(net, data, attack_value("distill", **QUICK), device="cpu", folder=tmp_path)
    resumed = attack(net, data, attack_value("distill", **QUICK), device="cpu", folder=tmp_path)
    assert all(torch.equal(value, whole.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())


def test_refusals(net: TinyNet, data: ImageData) -> None:
    with pytest.raises(InputError, match="unknown labels 'both': choose one of hard, soft"):
        Extraction(labels="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="temperature"):
        Extraction(temperature=0.0)
    with pytest.raises(InputError, match="unknown model"):
        attack(net, data, attack_value("distill", architecture="resnet-9000"))


def test_the_teacher_stays_frozen(net: TinyNet) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    objective = Distillation(net, hard=False, temperature=4.0)
    student = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    from indelible.train.objective import Step

    objective.backward(
        Step(student, torch.rand(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64), 0, 0, torch.Tensor.backward)
    )
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(weight.requires_grad for weight in net.parameters())
