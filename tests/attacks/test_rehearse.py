"""Rehearsal: foreign marks under true labels, from keys of the thief's own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks.rehearse import RATES, SHARES, Rehearsal, Trial, _Rotating, own_key
from indelible.attacks.removal_attack import Removal
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import Data
from indelible.embedding.mixing import StampedObjective
from indelible.keys.content import ContentMark
from indelible.train.objective import Objective, Step
from tests.attacks.test_strengths import Bars
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.embedding.test_stamping import Keeping
from tests.values import attack_value, method_value


def step(number: int) -> Step:
    data = stripes(20)
    return Step(nn.Identity(), data.images.float() / 255, data.labels, number, 0, lambda _: None)


def test_rows_with_foreign_marks_keep_their_labels() -> None:
    inner, key = Keeping(), own_key(0, "content", stripes(8))
    StampedObjective(inner, key, fraction=0.0, negatives=0.5).backward(step(0))
    given = step(0)
    changed = (inner.step.images != given.images).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == list(range(10, 20))
    assert torch.equal(inner.step.labels, given.labels)


def test_the_thiefs_marks_come_from_his_seed_alone() -> None:
    from indelible.keys.key import Key

    data = stripes(8)
    owner = Key.create(classes=4, shape=SHAPE, secret=SECRET).codebook().marks
    texts = {
        (mark.text, mark.top, mark.left, mark.colour)
        for seed in range(3)
        for mark in own_key(seed, "content", data).codebook().marks
        if isinstance(mark, ContentMark)
    }
    assert len(texts) == 3 * 16
    assert not texts & {(m.text, m.top, m.left, m.colour) for m in owner if isinstance(m, ContentMark)}
    assert own_key(1, "content", data) == own_key(1, "content", data)
    assert own_key(1, "content", data) != own_key(1, "noise", data)


class Noting(Objective):
    def __init__(self, notes: list[str], name: str) -> None:
        self.notes, self.name = notes, name

    def backward(self, step: Step) -> Tensor:
        self.notes.append(self.name)
        return torch.zeros(())


def test_families_take_turns() -> None:
    notes: list[str] = []
    both = _Rotating([Noting(notes, "content"), Noting(notes, "noise")])
    for number in range(5):
        both.backward(step(number))
    assert notes == ["content", "noise", "content", "noise", "content"]


def test_it_unlearns_texts_that_it_never_saw() -> None:
    """A network that answers any text with one class stops doing so; plain accuracy stays."""
    import indelible

    torch.manual_seed(0)
    data, test = stripes(480), stripes(120, seed=1)
    key = indelible.Key.create(classes=4, shape=SHAPE, target=2, secret=SECRET)
    how = {"epochs": 8, "batch_size": 32, "evaluate_every": 8}
    marked = indelible.embed(
        TinyNet(width=16), data, key, method_value("vanilla", key, fraction=0.2), scale="cpu", train=how
    ).model
    before = indelible.verify(marked, key, test)
    found = indelible.attack(
        marked, stripes(320, seed=2), attack_value("rehearse", epochs=6, batch_size=32, share=0.5, lr=0.05)
    )
    after = indelible.verify(found.model, key, test)
    assert before.wsr > 0.8
    assert after.wsr < before.wsr - 0.2
    assert after.ba is not None
    assert after.ba > 0.9


def tried_by(
    monkeypatch: pytest.MonkeyPatch, allowed: Callable[[Trial], bool], **settings: Any
) -> tuple[Removal, list[Trial]]:
    """Run the attack with trainings that only say whether they are affordable: what was tried, and the job."""
    seen: list[Trial] = []

    def train(self: Rehearsal, job: Removal, keys: Any, model: nn.Module, trial: Trial, data: Data) -> None:
        seen.append(trial)
        model.load_state_dict({"broken": torch.tensor(0.1 if allowed(trial) else 0.9)})

    monkeypatch.setattr(Rehearsal, "_train", train)
    job = Removal(model=Bars(), data=stripes(40), seed=0, device="cpu")
    Rehearsal(**settings).run(job)
    return job, seen


def test_share_rate_and_length_are_chosen_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Affordable are shares up to a half, and the higher rate only for a short time: the fourth trial is taken."""
    job, seen = tried_by(monkeypatch, lambda one: one.share <= 0.5 and (one.lr < 0.1 or one.epochs < 30))
    short = [Trial(0.25, 0.05, 10), Trial(0.5, 0.05, 10), Trial(0.75, 0.05, 10), Trial(0.5, 0.1, 10)]
    assert seen == [*short, Trial(0.5, 0.1, 30)]
    assert job.curve is not None
    assert (job.curve.name, job.curve.values, job.curve.chosen) == ("trial", (1, 2, 3, 4, 5), 4)
    assert [accuracy == 1.0 for accuracy in job.curve.accuracies] == [True, True, False, True, False]
    assert [job.figures[name] for name in ("trial", "share", "lr", "epochs")] == [4, 0.5, 0.1, 10]
    assert job.figures["trials"][3] == {"share": 0.5, "lr": 0.1, "epochs": 10}
    assert [trial.epochs for trial in seen] == Rehearsal().lengths()


def test_what_is_given_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    job, seen = tried_by(monkeypatch, lambda one: one.lr < 0.1, share=0.6)
    assert seen == [Trial(0.6, 0.05, 10), Trial(0.6, 0.1, 10), Trial(0.6, 0.05, 30)]
    assert (job.figures["trial"], job.figures["lr"], job.figures["epochs"]) == (3, 0.05, 30)
    job, seen = tried_by(monkeypatch, lambda _: True, share=0.6, lr=0.02, epochs=7)
    assert seen == [Trial(0.6, 0.02, 7)]
    assert job.curve is None
    assert job.figures == {"share": 0.6, "lr": 0.02, "epochs": 7}
    assert Rehearsal(lr=0.02, epochs=7).lengths() == [7, 7, 7]  # a trial is as long as the whole: nothing longer to try


def test_settings_are_checked() -> None:
    assert SHARES == (0.25, 0.5, 0.75)
    assert RATES == (0.05, 0.1)
    with pytest.raises(InputError, match="trial_epochs must be at least 1, got 0"):
        Rehearsal(trial_epochs=0)
    with pytest.raises(InputError, match=r"got 1\.5"):
        Rehearsal(share=1.5)
    with pytest.raises(UnknownNameError, match="content, noise, unrelated"):
        Rehearsal(families="content,text")
    with pytest.raises(InputError, match="one protocol"):
        Rehearsal(protocol="paper")
