"""Rehearsal: foreign marks under true labels, from keys of the thief's own."""

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks.rehearse import SHARES, Rehearsal, _Rotating, own_key
from indelible.base.errors import InputError, UnknownNameError
from indelible.embed.stamping import StampedObjective
from indelible.keys.content import ContentMark
from indelible.train.objective import Objective, Step
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.embed.test_stamping import Keeping


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
    marked = indelible.embed(TinyNet(width=16), data, key, "vanilla", preset="cpu", train=how, fraction=0.2).model
    before = indelible.verify(marked, key, test)
    found = indelible.attack(marked, stripes(320, seed=2), "rehearse", epochs=6, batch_size=32, share=0.5)
    after = indelible.verify(found.model, key, test)
    assert before.wsr > 0.8
    assert after.wsr < before.wsr - 0.2
    assert after.ba is not None
    assert after.ba > 0.9


def test_settings_are_checked() -> None:
    assert SHARES == (0.25, 0.5, 0.75)
    with pytest.raises(InputError, match=r"got 1\.5"):
        Rehearsal(share=1.5)
    with pytest.raises(UnknownNameError, match="content, noise"):
        Rehearsal(families="content,unrelated")
    with pytest.raises(InputError, match="one recipe"):
        Rehearsal(recipe="paper")
