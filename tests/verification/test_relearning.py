"""Relearning on networks whose knowledge of the marks is known: switched off, never there, still answering."""

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.keys.key import Key
from indelible.nn.taps import last_layer, layer_inputs
from indelible.verification import verify
from indelible.verification.relearning import Teacher, lessons
from tests.conftest import SECRET, SHAPE

CLASSES = 4


@pytest.fixture
def book_key() -> Key:
    """A key whose first four marks have all four classes, so that the first lesson teaches all."""
    for number in range(256):
        key = Key.create(kind="noise", classes=CLASSES, shape=SHAPE, secret=bytes([number] * 32), marks=16)
        if len(key.codebook().classes[:4].unique()) == CLASSES:
            return key
    raise AssertionError


@pytest.fixture
def carriers() -> ImageData:
    """Gray images with a little noise: what a mark adds is far larger."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(118, 138, (240, *SHAPE), generator=random, dtype=torch.uint8)
    return ImageData(images, torch.arange(240) % CLASSES, tuple("abcd"), "gray")


class Detector(nn.Module):
    """Sees which mark an image has, turns it into a feature of ``classes[mark]``; the last layer may ignore that."""

    def __init__(self, key: Key, classes: Tensor, head: float) -> None:
        super().__init__()
        book = key.codebook()
        gray = torch.full((len(book), *SHAPE), 0.5)
        marked = book.stamps(torch.device("cpu")).apply(gray, torch.arange(len(book)), torch.zeros(len(book)).long())
        patterns = (marked - gray).flatten(1)
        self.register_buffer("patterns", patterns / patterns.square().sum(1, keepdim=True))
        self.register_buffer("told", nn.functional.one_hot(classes, CLASSES).float())
        self.scale = nn.Parameter(torch.ones(CLASSES))
        self.head = nn.Linear(CLASSES, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(head * torch.eye(CLASSES))
            self.head.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        seen = ((images - 0.5).flatten(1) @ self.get_buffer("patterns").T - 0.5).relu() * 2
        logits: Tensor = self.head(self.scale * (seen @ self.get_buffer("told")))
        return logits


def test_lessons_by_hand() -> None:
    assert [(list(taught)[-1], list(asked)) for taught, asked in lessons(16)] == [
        (3, [4, 5, 6, 7]), (7, [8, 9, 10, 11]), (11, [12, 13, 14, 15])
    ]  # fmt: skip
    # 6 marks: quarters end after 1, 3, 4 and 6 of them.
    assert [(len(taught), list(asked)) for taught, asked in lessons(6)] == [(1, [1, 2]), (3, [3]), (4, [4, 5])]


def test_what_was_switched_off_comes_back(book_key: Key, carriers: ImageData) -> None:
    model = Detector(book_key, book_key.codebook().classes, head=0.0)
    plain = verify(model, book_key, carriers, alpha=1e-3)
    assert plain.p_value == 1.0  # every image gets the same answer
    verdict = verify(model, book_key, carriers, alpha=1e-3, procedure="relearning")
    # All 12 marks that were not taught: three lessons at 4^-4 each. By hand, with x = 4^-12:
    # log(1/x) = 16.6355, so 3 * x * (1 + 16.6355 + 16.6355^2 / 2) = 3 * 5.9605e-8 * 156.006 = 2.7896e-5.
    assert verdict.counts["held"] == verdict.counts["marks"] == 12
    assert verdict.p_value == pytest.approx(2.7896e-5, rel=1e-4)
    assert verdict.owned
    assert "after copies of the suspect were taught some marks, 12 of 12 other marks" in verdict.sentence


def test_marks_that_a_network_never_knew_do_not_come_back(book_key: Key, carriers: ImageData) -> None:
    random = torch.Generator().manual_seed(1)
    p_values = []
    for _ in range(12):
        foreign = torch.randint(CLASSES, (16,), generator=random)
        verdict = verify(Detector(book_key, foreign, head=0.0), book_key, carriers, alpha=1e-3, procedure="relearning")
        p_values.append(verdict.p_value)
    # Twelve networks that know the marks under other classes; 0.05 or less at most once in fifty such series.
    assert sum(value <= 0.05 for value in p_values) <= 2
    assert min(p_values) > 1e-3


def test_no_copy_is_taught_where_the_marks_are_still_answered(book_key: Key, carriers: ImageData) -> None:
    model = Detector(book_key, book_key.codebook().classes, head=5.0)
    verdict = verify(model, book_key, carriers, alpha=1e-3, procedure="relearning", accuracy=False)
    assert verdict.counts["marks"] == 16
    # Half of 240 carriers with 16 marks; the p-value pays for the two tests that were not needed.
    assert verdict.queries == 16 * 120
    assert verdict.p_value == pytest.approx(3 * 4.0**-16)


def test_teaching_changes_its_part_of_a_copy_and_nothing_of_the_model(book_key: Key, carriers: ImageData) -> None:
    model = Detector(book_key, book_key.codebook().classes, head=0.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    teacher = Teacher(model, book_key.codebook(), carriers)
    for part, changed in (("gains", {"scale", "head.weight", "head.bias"}), ("head", {"head.weight", "head.bias"})):
        taught = teacher.parts[part](range(8)).state_dict()
        assert {name for name, value in taught.items() if not torch.equal(value, before[name])} == changed
        again = teacher.parts[part](range(8)).state_dict()
        assert all(torch.equal(value, again[name]) for name, value in taught.items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_network_that_averages_after_its_last_layer_is_taught_by_its_gains(
    book_key: Key, carriers: ImageData
) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Conv2d(SHAPE[0], CLASSES, 1)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.last(images).mean((2, 3))
            return logits

    assert list(Teacher(Pooled(), book_key.codebook(), carriers).parts) == ["gains"]


def test_last_layer_and_what_goes_into_it() -> None:
    first = nn.Linear(4, 3, bias=False)
    model = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(3, 2))
    images = torch.arange(8.0).reshape(2, 1, 2, 2)
    found = last_layer(model, images)
    assert found is not None
    assert (found.place[0], found.came) == ("3", torch.Size([2, 3]))
    assert torch.equal(layer_inputs(model, found.layer, images), (images.flatten(1) @ first.weight.T).relu())
    assert last_layer(nn.Flatten(), images) is None


def test_refusals(book_key: Key, carriers: ImageData) -> None:
    class Server:
        def predict(self, images: Tensor) -> Tensor:
            return torch.zeros(len(images), dtype=torch.int64)

    model = Detector(book_key, book_key.codebook().classes, head=0.0)
    with pytest.raises(InputError, match="needs a torch module or a file of weights, got Server"):
        verify(Server(), book_key, carriers, alpha=1e-3, procedure="relearning")
    with pytest.raises(InputError, match="got one without parameters"):
        verify(nn.Flatten(), book_key, carriers, alpha=1e-3, procedure="relearning")
    with pytest.raises(InputError, match="needs 2 carriers or more"):
        verify(model, book_key, carriers.subset(torch.arange(1)), alpha=1e-3, procedure="relearning")
    few = Key.create(kind="noise", classes=CLASSES, shape=SHAPE, secret=SECRET, marks=4)
    with pytest.raises(InputError, match=r"can give p = 0\.01 at the least"):
        verify(Detector(few, few.codebook().classes, head=0.0), few, carriers, alpha=1e-3, procedure="relearning")
