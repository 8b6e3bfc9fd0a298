"""Marks on fresh carriers: which rows, which marks, what stays as it was, and what it is for: a proof."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError
from indelible.data.augment import Share, normalise
from indelible.embedding.mixing import StampedBatches, StampedObjective
from indelible.keys.key import Key
from indelible.train.objective import Objective, Step
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value

NORMAL = ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


@pytest.fixture
def book() -> Key:
    return Key.create(classes=4, shape=SHAPE, secret=SECRET)


def batch(count: int = 16) -> Tensor:
    return stripes(count).images.float() / 255


def test_rows_are_stamped_with_the_marks_of_the_key(book: Key) -> None:
    images = batch()
    stamped, labels = StampedBatches(book, 10, seed=3).batch(5, images)
    marks, found = book.codebook().marks, set()
    for row in range(10):
        fitting = [
            number
            for number, mark in enumerate(marks)
            if torch.allclose(mark.apply(stripes(16).images[row : row + 1])[0] / 255.0, stamped[row])
        ]
        assert len(fitting) == 1
        assert int(labels[row]) == int(book.codebook().classes[fitting[0]])
        found.add(fitting[0])
    assert len(found) > 3
    again, _ = StampedBatches(book, 10, seed=3).batch(5, images)
    assert torch.equal(stamped, again)
    assert not torch.equal(stamped, StampedBatches(book, 10, seed=3).batch(6, images)[0])
    assert torch.equal(images, batch())  # the ordinary batch stays as it was


def test_normalised_batches_get_the_same_mark(book: Key) -> None:
    plain, _ = StampedBatches(book, 8).batch(0, batch())
    stamped, _ = StampedBatches(book, 8, normalize=NORMAL).batch(0, normalise(batch(), NORMAL))
    torch.testing.assert_close(stamped, normalise(plain, NORMAL), rtol=1e-5, atol=1e-5)


def test_two_processes_stamp_what_one_would(book: Key) -> None:
    images, source = batch(), StampedBatches(book, 10)
    whole, labels = source.batch(2, images)
    for rank in range(2):
        share = Share(rank, 2)
        part, own = source.batch(2, share.of(images), share)
        assert torch.equal(part, share.of(whole))
        assert torch.equal(own, share.of(labels))


def test_rows_repeat_when_the_batch_is_small(book: Key) -> None:
    stamped, labels = StampedBatches(book, 10).batch(0, batch(4))
    assert len(stamped) == len(labels) == 10


class Keeping(Objective):
    """Keeps what it is given."""

    def backward(self, step: Step) -> Tensor:
        self.step = step
        return torch.zeros(())


def step(number: int = 0, count: int = 20) -> Step:
    data = stripes(count)
    return Step(nn.Identity(), data.images.float() / 255, data.labels, number, 0, lambda _: None)


def test_a_share_of_the_batch_is_stamped_and_a_share_is_foreign(book: Key) -> None:
    inner = Keeping()
    given = step()
    StampedObjective(inner, book, fraction=0.25, negatives=0.1).backward(given)
    changed = (inner.step.images != given.images).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 18, 19]
    assert torch.equal(inner.step.labels[5:], given.labels[5:])  # negatives keep their labels
    own = {float(value) for value in book.codebook().classes}
    assert {float(value) for value in inner.step.labels[:5]} <= own
    assert torch.equal(given.images, step().images)


def test_a_share_that_is_no_whole_number_is_right_on_average(book: Key) -> None:
    inner = Keeping()
    objective = StampedObjective(inner, book, fraction=0.02)
    counts = []
    for number in range(400):
        given = step(number)
        objective.backward(given)
        counts.append(int((inner.step.images != given.images).flatten(1).any(1).sum()))
    assert set(counts) == {0, 1}
    assert 120 <= sum(counts) <= 200  # 160 expected, standard deviation 10


def test_a_share_of_zero_changes_nothing(book: Key) -> None:
    inner = Keeping()
    given = step()
    StampedObjective(inner, book, fraction=0.0).backward(given)
    assert torch.equal(inner.step.images, given.images)
    assert torch.equal(inner.step.labels, given.labels)


def test_what_cannot_be_is_refused(book: Key) -> None:
    with pytest.raises(InputError, match=r"together, got 0\.9 and 0\.2"):
        StampedObjective(Keeping(), book, fraction=0.9, negatives=0.2)
    with pytest.raises(InputError, match=r"must not be negative .* got 0\.1 and -0\.1"):
        StampedObjective(Keeping(), book, fraction=0.1, negatives=-0.1)
    pool = stripes(160, seed=3)
    unrelated = Key.create(kind="unrelated", classes=4, shape=SHAPE, source=pool, marks=4, secret=SECRET)
    with pytest.raises(InputError, match="share its images"):
        StampedObjective(Keeping(), unrelated, fraction=0.1, negatives=0.2)


def test_negatives_of_unrelated_images_have_random_classes() -> None:
    key = Key.create(kind="unrelated", classes=4, shape=SHAPE, marks=4, secret=SECRET)
    inner, labels = Keeping(), list[Tensor]()
    objective = StampedObjective(inner, key, fraction=0.0, negatives=0.5)
    own = {image.numpy().tobytes() for mark in key.codebook().marks for image in mark.samples(None, 64, "embed")}
    for number in range(40):
        given = replace(step(), number=number)
        objective.backward(given)
        half = len(given.images) // 2
        assert torch.equal(inner.step.images[:half], given.images[:half])
        assert torch.equal(inner.step.labels[:half], given.labels[:half])
        drawn = (inner.step.images[half:] * 255).round().to(torch.uint8)
        assert not own & {image.numpy().tobytes() for image in drawn}
        labels.append(inner.step.labels[half:])
    counts = torch.bincount(torch.cat(labels), minlength=4).double()
    expected = counts.sum() / 4
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-squared with 3 degrees of freedom: p = 0.001


SHORT: dict[str, Any] = {"epochs": 8, "batch_size": 32, "evaluate_every": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "app": {"alpha": 0.6, "rows": 32, "clean_rows": 32},
    "vanilla": {"fraction": 0.4},
    "cw": {"fraction": 0.4, "levels": 2, "draws": 1, "start_epoch": 1, "rows": 16},
    "pgd-at": {"fraction": 0.4, "steps": 1, "eps": 0.01},
    "trades": {"fraction": 0.4, "steps": 1, "eps": 0.01},
}


@pytest.mark.parametrize("method", sorted(SETTINGS))
def test_a_codebook_is_learnt_and_proven(book: Key, method: str) -> None:
    torch.manual_seed(1)
    made = indelible.embed(
        TinyNet(width=16), stripes(640), book, method_value(method, book, **SETTINGS[method]),
        scale="cpu", train=SHORT, test=stripes(120, seed=1),
    )  # fmt: skip
    assert made.verdict.owned, made.verdict.sentence
    assert made.advice is None
    assert made.samples is None
    assert made.verdict.p_value < 1e-6
    # A key that the model never saw proves nothing, on the same model and images.
    stranger = Key.create(classes=4, shape=SHAPE, secret=bytes(32))
    assert indelible.verify(made.model, stranger, stripes(120, seed=1)).p_value > 1e-4


def test_an_unmarked_model_is_told_what_to_do(book: Key) -> None:
    torch.manual_seed(1)
    made = indelible.embed(
        TinyNet(), stripes(320), book, method_value("vanilla", book, fraction=0.0), scale="cpu",
        train={**SHORT, "epochs": 1},
        test=stripes(80, seed=1),
    )  # fmt: skip
    assert not made.verdict.owned
    assert made.advice is not None
    assert "Do not release this model" in made.advice


def test_few_marks_are_judged_at_the_level_that_they_can_reach() -> None:
    """Three marks over four classes give p = 1/64 at the least: no reason to lose a finished training."""
    few = Key.create(classes=4, shape=SHAPE, secret=SECRET, marks=3)
    done = indelible.embed(TinyNet(), stripes(40), few, method="vanilla", train={"epochs": 1, "max_steps": 1})
    assert done.verdict.alpha == 1 / 64
    with pytest.raises(InputError, match=r"3 marks over 4 classes can give p = 0\.02 at the least"):
        indelible.verify(done.model, few, carriers=stripes(40))


def test_the_own_loop_needs_no_carriers(book: Key) -> None:
    torch.manual_seed(2)
    net, data = TinyNet(width=16), stripes(640)
    mark = indelible.APP(net, book, method=method_value("app", book, "paper", alpha=0.6, rows=32, clean_rows=32))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    images = data.images.float() / 255
    net.train()
    for number in range(160):
        rows = torch.randperm(640, generator=torch.Generator().manual_seed(number))[:32]
        optimizer.zero_grad()
        F.cross_entropy(net(images[rows]), data.labels[rows]).backward()
        mark.backward(images[rows])
        optimizer.step()
    verdict = indelible.verify(net, book, stripes(120, seed=1))
    assert verdict.owned, verdict.sentence


def test_the_own_loop_takes_bytes_and_normalised_images(book: Key) -> None:
    def gradient(images: Tensor, **how: Any) -> Tensor:
        torch.manual_seed(0)
        net = TinyNet().train()
        indelible.APP(net, book, method=method_value("app", book, "paper", rows=8, clean_rows=8), **how).backward(
            images
        )
        found = net.head.weight.grad
        assert found is not None
        return found

    data = stripes(16)
    floats = data.images.float() / 255
    assert torch.equal(gradient(floats), gradient(data.images))
    normal = gradient(normalise(floats, NORMAL), normalize=NORMAL)
    torch.testing.assert_close(normal, gradient(data.images, normalize=NORMAL), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match=r"expected images in \[0, 1\], got values from -2.00 to"):
        gradient(normalise(floats, NORMAL))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"negatives": 0.04}, "`negatives` changes the ordinary batch"),
        ({"batch": "clean"}, "`batch` changes the ordinary batch"),
        ({"fraction": 0.1}, "`fraction` has no effect"),
        ({"carriers": stripes(8)}, "`carriers` has no effect"),
    ],
)
def test_the_own_loop_refuses_what_has_no_effect(book: Key, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        indelible.APP(
            TinyNet(), book, settings.pop("carriers", None), method=method_value("app", book, "paper", **settings)
        )


def test_the_own_loop_says_how_settings_are_given(book: Key) -> None:
    with pytest.raises(InputError, match=r"got eps=0.01. Give method=AdversarialPerturbation.for_key\(key, eps=0.01\)"):
        indelible.APP(TinyNet(), book, eps=0.01)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"method must be a value, AdversarialPerturbation.for_key\(key\), got 'app'"):
        indelible.APP(TinyNet(), book, method="app")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Give method=CertifiedTraining.for_key\(key, draws=2\)"):
        indelible.CW(TinyNet(), book, steps=3, draws=2)  # type: ignore[call-arg]


def test_the_own_loop_augments_rows_before_it_stamps_them(book: Key) -> None:
    images = stripes(8).images.float() / 255

    def rows(augmentation: str) -> torch.Tensor:
        return StampedBatches(book, 8, augmentation=augmentation, seed=3).batch(0, images)[0]  # type: ignore[arg-type]

    plain, moved = rows("none"), rows("crop-flip")
    # The same marks: on black images, of which a crop or a flip leaves black, both draw the same.
    dark = StampedBatches(book, 8, seed=3).batch(0, torch.zeros_like(images))[0]
    assert torch.equal(
        dark, StampedBatches(book, 8, augmentation="crop-flip", seed=3).batch(0, torch.zeros_like(images))[0]
    )
    assert not torch.equal(plain, moved)
    stamped = dark > 0
    assert torch.equal(plain[stamped], moved[stamped])

    def gradient(**how: Any) -> torch.Tensor:
        torch.manual_seed(0)
        model = TinyNet()
        indelible.APP(model, book, seed=3, **how).backward(images)
        return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])

    assert torch.equal(gradient(), gradient(augmentation="crop-flip"))
    assert not torch.equal(gradient(), gradient(augmentation="none"))


def test_the_own_loop_refuses_a_batch_that_the_key_does_not_fit(book: Key, key: Key) -> None:
    mark = indelible.APP(TinyNet(), book)
    with pytest.raises(InputError, match=r"shape \(N, 3, 32, 32\).*got the shape \(4, 3, 16, 16\)"):
        mark.backward(torch.zeros(4, 3, 16, 16))
    with pytest.raises(InputError, match="the model has 7 outputs, but the key is of 4 classes"):
        indelible.APP(TinyNet(classes=7), book).backward(torch.zeros(8, *SHAPE))
    with pytest.raises(InputError, match="got int64"):
        mark.backward(torch.zeros(4, *SHAPE, dtype=torch.int64))
    with pytest.raises(InputError, match="give carriers="):
        indelible.APP(TinyNet(), key)
