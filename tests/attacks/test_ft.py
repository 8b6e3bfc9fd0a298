"""FT: the paper's settings, the two protocols, isolation, and an ordinary model in and out."""

import copy
import inspect
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

import indelible
from indelible.attacks import ATTACKS, FineTuning
from indelible.attacks.removal_attack import Removal, attack
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.train import Schedule, TrainSettings, fit
from tests.conftest import TinyNet, stripes
from tests.values import attack_value, method_value


def test_the_papers_settings() -> None:
    value = FineTuning()
    assert (value.epochs, value.lr, value.every, value.gamma, value.momentum) == (30, 0.05, 5, 0.5, 0.9)
    assert (value.weight_decay, value.batch_size, value.protocol) == (5e-4, 128, "sound")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


@pytest.mark.parametrize(("protocol", "augmentation"), [("paper", "none"), ("sound", "crop-flip")])
def test_recipes_equal_plain_fitting(net: TinyNet, data: ImageData, protocol: str, augmentation: str) -> None:
    """FT is ordinary training with its own settings: the same bits as calling the loop directly."""
    attacked = attack(net, data, attack_value("ft", protocol=protocol, epochs=2, batch_size=64), seed=5, device="cpu")
    twin = copy.deepcopy(net)
    settings = TrainSettings(
        epochs=2, lr=0.05, momentum=0.9, weight_decay=5e-4, batch_size=64, schedule=Schedule.every(5, 0.5)
    ).but(augmentation=augmentation)
    fit(twin, data, settings, seed=5, device="cpu")
    assert all(torch.equal(value, twin.state_dict()[name]) for name, value in attacked.model.state_dict().items())


def test_the_stolen_model_is_left_alone_and_comes_out_ordinary(
    net: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(net.state_dict())
    net.eval()
    readings = iter([10.0, 1e6 + 10.0])
    monkeypatch.setattr("indelible.attacks.removal_attack.time", SimpleNamespace(monotonic=lambda: next(readings)))
    attacked = indelible.attack(net, (data.images, data.labels), attack_value("ft", epochs=1), device="cpu")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert type(attacked.model) is TinyNet
    assert not attacked.model.training
    assert not any(torch.equal(value, before[name]) for name, value in attacked.model.named_parameters())
    assert attacked.record.verb == "attack"
    assert attacked.record.images == 320
    # A million seconds of that clock, but for what the loop's own clock counts twice or not at all.
    assert attacked.record.seconds == pytest.approx(1e6, abs=100)
    assert attacked.record.settings["method"]["epochs"] == 1
    assert "accuracy_attacker" in attacked.history[-1]


def test_an_attack_is_given_nothing_of_the_owner() -> None:
    """Neither the verb nor the job has a way in for key, watermark samples, WSR or test data."""
    allowed = {"model", "data", "method", "scale", "seed", "normalize", "folder", "device"}
    assert set(inspect.signature(attack).parameters) == allowed
    assert {field.name for field in fields(Removal)} == {
        "model", "data", "seed", "normalize", "folder", "device", "curve", "phases", "figures", "images", "seconds",
        "method", "_trained", "architecture", "labelled",
    }  # fmt: skip


def test_every_attack_is_registered_with_what_a_person_should_know() -> None:
    for info in ATTACKS.entries():
        assert all([info.title, info.paper, info.summary, info.cost])
        assert info.build().protocol == "sound"


def test_refusals(net: TinyNet, data: ImageData) -> None:
    with pytest.raises(UnknownNameError, match="removal attack 'tf'"):
        attack(net, data, "tf")
    with pytest.raises(UnknownNameError, match="protocol"):
        attack(net, data, FineTuning.at_scale(protocol="strong"))  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="epoch"):
        attack(net, data, epoch=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"got lr=0.01\. Give method=FineTuning.at_scale\(lr=0.01\)"):
        attack(net, data, lr=0.01)  # type: ignore[call-arg]
    with pytest.raises(UnknownNameError, match=r"setting of FineTuning 'epoch'.*Did you mean 'epochs'"):
        FineTuning.at_scale(epoch=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="4 outputs, but 'data' has 7 classes"):
        attack(net, (data.images, data.labels + 3))
    with pytest.raises(InputError, match="cannot take images"):
        attack(net, (data.images[:, :1], data.labels))
    with pytest.raises(InputError, match="empty"):
        attack(net, (data.images[:0], data.labels[:0]))


def test_fine_tuning_weakens_a_vanilla_mark(net: TinyNet, key: indelible.Key) -> None:
    """On a toy task: after embedding the mark works; fine-tuning with other labels for marked images removes it."""
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
    samples = key.samples(data, purpose="embed")
    washed = attack(
        embedded.model,
        (samples.images, data.labels[samples.carriers]),
        attack_value("ft", epochs=6, batch_size=32),
        device="cpu",
    )
    assert indelible.verify(washed.model, key, test).wsr < 0.4
