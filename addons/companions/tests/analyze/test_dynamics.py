"""Dynamics: looks leave the attack's bits alone, distances are right, and a broken run goes on."""

from pathlib import Path
from typing import Any

import pytest
import torch

from indelible.analyze.directions import relative_length, weights_of
from indelible.attacks import attack
from indelible.base.errors import InputError
from indelible_companions.analyze.dynamics import Dynamics, DynamicsSettings, Moment, Track, dynamics
from tests.analyze.marked_models import marked_subject
from tests.values import attack_value

SHORT: dict[str, Any] = {"epochs": 2, "batch_size": 32, "lr": 0.05}
SMALL = DynamicsSettings(settings=SHORT, every=3, images=40, carriers=60)


def _moment(step: int, *, owned: bool) -> Moment:
    return Moment(phase="p", step=step, distance=0.1, ba=0.9, wsr=0.5, p_value=0.0, owned=owned)


def test_the_first_loss_by_hand() -> None:
    moments = [_moment(0, owned=True), _moment(3, owned=False), _moment(6, owned=True), _moment(9, owned=False)]
    lost = Track(label="x", moments=tuple(moments)).lost
    assert lost is not None
    assert lost.step == 3
    assert Track(label="x", moments=tuple(moments[:1])).lost is None


def test_the_sentence_says_when() -> None:
    held, lost = _moment(0, owned=True), _moment(3, owned=False)
    settings = DynamicsSettings()
    said = [
        Dynamics(settings=settings, tracks=(Track(label="x", moments=moments),)).sentences()[0]
        for moments in ((held, lost), (held, held), (lost, held), (held, lost, held))
    ]
    assert "first stops holding at step 3 of FT" in said[0]
    assert "holds at alpha 1e-06 at every look" in said[1]
    assert "does not hold even before FT" in said[2]
    assert "holds again at the end" in said[3]


def test_what_is_seen_is_what_the_attack_does(tmp_path: Path) -> None:
    subject = marked_subject()
    made = dynamics([subject], SMALL, tmp_path, device="cpu")
    (track,) = made.tracks
    # 96 images in batches of 32 are 3 steps an epoch.
    assert [(one.phase, one.step) for one in track.moments] == [
        ("before", 0), ("fine-tuning", 1), ("fine-tuning", 3), ("fine-tuning", 6), ("after", 6),
    ]  # fmt: skip
    alone = attack(subject.model, subject.attacker, attack_value("ft", **SHORT), device="cpu").model
    moved = [after - at for after, at in zip(weights_of(alone), weights_of(subject.model), strict=True)]
    assert track.moments[-1].distance == relative_length(weights_of(subject.model), moved)
    assert track.moments[0].distance == 0.0
    assert track.moments[-2].wsr == track.moments[-1].wsr
    assert Dynamics.from_json(made.to_json()) == made
    assert not list((tmp_path / "attack-0").glob("*.safetensors"))
    again = dynamics([subject], SMALL, tmp_path, device="cpu")
    assert again == made
    with pytest.raises(InputError, match="other settings"):
        dynamics([subject], DynamicsSettings(every=5), tmp_path)


def test_watching_changes_no_bit() -> None:
    from indelible.train.fit_and_watch import watched

    subject = marked_subject()
    alone = attack(subject.model, subject.attacker, attack_value("ft", **SHORT), device="cpu").model
    steps: list[int] = []
    with watched(lambda _model, _phase, step: steps.append(step)):
        seen = attack(subject.model, subject.attacker, attack_value("ft", **SHORT), device="cpu").model
    assert steps == [1, 2, 3, 4, 5, 6]
    assert all(torch.equal(value, seen.state_dict()[name]) for name, value in alone.state_dict().items())
    attack(subject.model, subject.attacker, attack_value("ft", **SHORT), device="cpu")
    assert len(steps) == 6, "outside the block nobody is told"


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="every"):
        DynamicsSettings(every=0)
    with pytest.raises(InputError, match="at least one model"):
        dynamics([])
