"""Samples: pixels as the key draws them, and how much they change, by hand."""

from dataclasses import replace

import pytest
import torch

from indelible.analyze.mark_pictures import Samples, SamplesSettings, samples
from indelible.base.errors import InputError
from indelible.keys.content import ContentMark
from indelible.keys.key import Key
from indelible.keys.unrelated import UnrelatedMark
from indelible.report.drawing import as_svg
from indelible.report.figures import samples_drawing
from tests.conftest import SECRET, SHAPE, stripes


def test_pictures_are_the_keys_own(key: Key) -> None:
    data = stripes(40, seed=1)
    made = samples(key, data)
    assert [one.title for one in made.pictures] == [
        "original", "content", "noise", "unrelated", "0.8×", "0.9×", "1×", "1.2×", "0 %", "25 %", "50 %", "75 %",
    ]  # fmt: skip
    original, content = made.pictures[:2]
    assert made.carrier == "bar 1"  # the first image outside the target class
    assert torch.equal(original.image(), data.images[1])
    assert torch.equal(content.image(), key.mark().apply(data.images[1:2])[0])
    assert made.pictures[6].pixels == content.pixels == made.pictures[8].pixels
    assert Samples.from_json(made.to_json()) == made


def test_how_much_changes_by_hand(key: Key) -> None:
    """On black, an opaque mark changes its own pixels: each by 1 in the channels that it lights."""
    black = (torch.zeros(4, *SHAPE, dtype=torch.uint8), torch.tensor([0, 1, 2, 3]))
    mark = key.mark()
    mask, lit = int(mark.mask().sum()), sum(value == 255 for value in mark.colour)  # type: ignore[attr-defined]
    original, content, _, unrelated = samples(key, black).pictures[:4]
    assert (original.changed, original.rms) == (0.0, 0.0)
    assert content.changed == pytest.approx(mask / 1024)
    assert content.rms == pytest.approx((mask * lit / 3072) ** 0.5)
    assert unrelated.changed is None


def test_sizes_that_do_not_fit_are_left_out() -> None:
    key = Key.create(classes=4, shape=(1, 28, 28), target=0, secret=SECRET)
    data = (torch.zeros(4, 1, 28, 28, dtype=torch.uint8), torch.arange(4))
    assert "1.2×" not in [one.title for one in samples(key, data).pictures]
    with pytest.raises(InputError, match="no mark of the sizes"):
        samples(key, data, SamplesSettings(sizes=(9.0,)))
    with pytest.raises(InputError, match="image must be below 3"):
        samples(key, data, SamplesSettings(image=3))


def test_an_unrelated_key_shows_its_own_images() -> None:
    key = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, secret=SECRET)
    shown = samples(key, stripes(8)).pictures[3]
    assert torch.equal(shown.image(), key.mark().samples(None, 1, "verify")[0])
    assert isinstance(replace(key, kind="content").mark(), ContentMark)


def test_a_key_without_a_target_class_is_refused() -> None:
    key = Key.create(classes=4, shape=SHAPE, labels="keyed", secret=SECRET)
    with pytest.raises(InputError, match="keyed labels"):
        samples(key, stripes(8))


@pytest.mark.parametrize("kind", ["content", "unrelated"])
def test_a_codebook_shows_every_mark_with_its_class(kind: str) -> None:
    key, data = Key.create(kind=kind, classes=4, shape=SHAPE, marks=5, secret=SECRET), stripes(8)
    made = samples(key, data, SamplesSettings(image=2))
    book = key.codebook()
    shown = made.pictures[kind == "content" :]
    assert [one.title for one in shown] == [f"{at + 1}: bar {c}" for at, c in enumerate(book.classes.tolist())]
    assert all(one.row == "mark" for one in made.pictures)
    for mark, one in zip(book.marks, shown, strict=True):
        if isinstance(mark, UnrelatedMark):
            assert torch.equal(one.image(), mark.samples(None, 1, "verify")[0])
            assert one.changed is None
        else:
            assert torch.equal(one.image(), mark.apply(data.images[2:3])[0])
    assert made.carrier == ("bar 2" if kind == "content" else "")
    assert made.sentences()[0].startswith("A marked model answers each of 5 marks with its secret class")
    assert Samples.from_json(made.to_json()) == made
    # One line of the five marks, and the image as it is where the marks stand on one.
    pytest.importorskip("matplotlib")
    assert as_svg(samples_drawing(made)).count("<image") == len(made.pictures)
    with pytest.raises(InputError, match="image must be below 8"):
        samples(key, data, SamplesSettings(image=8))
