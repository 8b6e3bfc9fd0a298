"""Codebooks: marks and classes from separate draws, bound carriers, stamps that equal the marks themselves."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.images import ImageData
from indelible.keys.codebook import class_key, default_marks, drawn_classes, mark_seed, marks_root
from indelible.keys.content import ContentMark
from indelible.keys.key import Key
from indelible.keys.unrelated import UnrelatedMark
from tests.conftest import SECRET, SHAPE, stripes

OTHER = bytes(range(1, 33))


def book(**settings: object) -> Key:
    return Key.create(**{"classes": 4, "shape": SHAPE, "secret": SECRET, **settings})  # type: ignore[arg-type]


def test_a_codebook_is_the_default_and_a_target_or_the_paper_gives_one_mark() -> None:
    assert book().labels == "codebook"
    assert book().target is None
    assert book(target=1).labels == "fixed"
    assert book(scheme="paper").labels == "fixed"
    assert book(labels="fixed").target is not None
    assert book(labels="keyed").marks is None


@pytest.mark.parametrize(("classes", "marks"), [(2, 32), (3, 21), (4, 16), (10, 16), (20, 13), (100, 8), (1000, 8)])
def test_the_number_of_marks_follows_the_classes(classes: int, marks: int) -> None:
    assert default_marks(classes) == marks
    assert classes**marks >= 2**32


def test_marks_and_classes_are_drawn_apart() -> None:
    key = book(marks=6)
    other = book(marks=6, secret=OTHER)
    texts = [mark.text for mark in key.codebook().marks if isinstance(mark, ContentMark)]
    assert len(set(texts)) == 6
    assert texts != [mark.text for mark in other.codebook().marks if isinstance(mark, ContentMark)]
    # A mark is a function of its own seed alone; a longer book begins with the same marks, with other classes.
    assert ContentMark.derived(mark_seed(SECRET, 2), SHAPE) == key.codebook().marks[2]
    assert book(marks=9).codebook().marks[:6] == key.codebook().marks
    root = marks_root(SECRET, 6)
    drawn = drawn_classes(class_key(SECRET), root, classes=4, marks=6)
    assert torch.equal(drawn, key.codebook().classes)


def test_classes_are_uniform_and_independent() -> None:
    keys = [bytes([a, b]) * 16 for a, b in itertools.product(range(40), range(50))]
    drawn = torch.stack([drawn_classes(key, b"", classes=4, marks=2) for key in keys])
    pairs = torch.bincount(drawn[:, 0] * 4 + drawn[:, 1], minlength=16).double()
    expected = len(keys) / 16
    # Chi-square with 15 degrees of freedom: 37.7 is exceeded once in a thousand. The draws are fixed: no luck here.
    assert float(((pairs - expected) ** 2 / expected).sum()) < 37.7


def test_every_change_of_a_carrier_draws_all_classes_anew() -> None:
    carriers = stripes(20)
    key = book(marks=16, carriers=carriers)
    assert key.is_bound_to(carriers)
    pixel = carriers.images.clone()
    pixel[7, 0, 3, 3] ^= 1
    label = carriers.labels.clone()
    label[0] = 3
    fewer = carriers.subset(torch.arange(19))
    turned = carriers.subset(torch.arange(19, -1, -1))
    changed = [
        ImageData(pixel, carriers.labels, carriers.classes),
        ImageData(carriers.images, label, carriers.classes),
        fewer,
        turned,
    ]
    for data in changed:
        assert not key.is_bound_to(data)
        assert not torch.equal(book(marks=16, carriers=data).codebook().classes, key.codebook().classes)
    assert book().bound is None
    assert not book().is_bound_to(carriers)


def test_samples_are_every_mark_on_the_same_carriers() -> None:
    data = stripes(30)
    key = book(marks=5)
    samples = key.samples(data, purpose="verify", count=5 * 12)
    assert samples.marks is not None
    assert samples.true is not None
    assert torch.equal(samples.marks, torch.arange(5).repeat_interleave(12))
    assert torch.equal(samples.labels, key.codebook().classes[samples.marks])
    rows = samples.carriers.reshape(5, 12)
    assert (rows == rows[0]).all()
    assert len(set(rows[0].tolist())) == 12
    for mark, part in zip(key.codebook().marks, samples.images.reshape(5, 12, *SHAPE), strict=True):
        assert isinstance(mark, ContentMark)
        assert torch.equal(part, mark.apply(data.images[rows[0]]))
    # All true classes are asked - leaving one out would show the mark's class - but its own does not count as a hit.
    assert set(samples.true.tolist()) == {0, 1, 2, 3}
    assert torch.equal(samples.counted, samples.true != samples.labels)
    hits, trials = samples.score(samples.labels)
    assert hits == trials == int((samples.true != samples.labels).sum())


def test_by_default_200_carriers_or_all_there_are() -> None:
    assert len(book(marks=3).samples(stripes(240), purpose="verify")) == 600
    assert len(book(marks=3).samples(stripes(50), purpose="verify")) == 150
    with pytest.raises(InputError, match="from 3 to 150 is possible here, got 2"):
        book(marks=3).samples(stripes(50), purpose="verify", count=2)
    with pytest.raises(InputError, match="from 3 to 150 is possible here, got 153"):
        book(marks=3).samples(stripes(50), purpose="verify", count=153)


@pytest.mark.parametrize("settings", [{"kind": "content"}, {"kind": "noise"}, {"transparency": 0.5}])
def test_stamps_equal_the_marks(settings: dict[str, object]) -> None:
    key = book(marks=4, **settings)
    images = stripes(12).images
    which = torch.tensor([0, 1, 2, 3] * 3)
    stamped = key.codebook().stamps().apply(images.float() / 255, which, which)
    for row, mark in enumerate(which.tolist()):
        exact = key.codebook().marks[mark].apply(images[row : row + 1])[0]
        # Bytes are rounded, floats are not: half a step apart at most, and not at all for opaque text and for noise.
        assert float((stamped[row] * 255 - exact).abs().max()) <= (0.51 if "transparency" in settings else 1e-4)


def test_families_take_the_place_of_images() -> None:
    key = book(kind="unrelated", marks=3)
    images, which, draws = torch.zeros(6, *SHAPE), torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6)
    stamped = key.codebook().stamps().apply(images, which, draws)
    for row in range(6):
        mark = key.codebook().marks[int(which[row])]
        assert isinstance(mark, UnrelatedMark)
        assert torch.equal((stamped[row] * 255).round().to(torch.uint8), mark.samples(None, 64, "embed")[row])
    asked = key.samples(stripes(8), purpose="verify")
    assert asked.true is None
    assert len(asked) == 600
    shown = {image.numpy().tobytes() for image in key.codebook().marks[0].samples(None, 64, "embed")}
    assert not shown & {image.numpy().tobytes() for image in asked.images[:200]}


def test_a_second_data_set_gives_a_class_to_every_mark() -> None:
    source = stripes(80, seed=5)
    key = book(kind="unrelated", source=source)
    assert key.marks == 4  # as many as the set has classes
    assert key.pool is not None
    assert key.pool.shape == (4, 20, *SHAPE)
    assert torch.equal(key.pool[2], source.images[source.labels == 2])
    other = book(kind="unrelated", source=source.subset(torch.arange(79)))
    assert key.bound != other.bound
    with pytest.raises(InputError, match="source_class"):
        book(kind="unrelated", source=source, source_class=1)


@pytest.mark.parametrize("side", [8, 9, 12, 16, 19, 20, 24, 28, 33, 40, 47, 48, 50, 52, 63, 64, 96, 224])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_text_fits_every_shape_from_eight_pixels_up(side: int, channels: int) -> None:
    for number in range(4):
        mark = ContentMark.derived(mark_seed(SECRET, number), (channels, side, side))
        rows, columns = mark.mask().nonzero().unbind(1)
        assert mark.mask().shape == (side, side)
        assert int(rows.max() - rows.min()) + 1 >= (8 if side >= 56 else 5)
        assert len(mark.text) == min(4, (side + 2) // 7)
        assert int(columns.max()) < side


def test_a_key_on_disk_is_the_same_key(tmp_path: Path) -> None:
    for number, key in enumerate([book(carriers=stripes(9)), book(kind="unrelated", source=stripes(80)), book()]):
        place = key.save(tmp_path / str(number))
        again = Key.load(place)
        assert again == key
        assert torch.equal(again.codebook().classes, key.codebook().classes)
    public = json.loads((tmp_path / "2" / "key.json").read_text())
    changes: list[tuple[dict[str, object], str]] = [
        ({"marks": 17}, "does not match its digest"),
        ({"bound": "0" * 64}, "does not match its digest"),
        ({"labels": "fixed"}, "a key of version 2 with fixed labels, this package reads version 1"),
        ({"marks": None}, "2 to 1024 marks, got None"),
    ]
    for change, says in changes:
        (tmp_path / "2" / "key.json").write_text(json.dumps({**public, **change}))
        with pytest.raises(DamagedFileError, match=says):
            Key.load(tmp_path / "2")


def test_what_makes_no_codebook_is_refused() -> None:
    with pytest.raises(InputError, match="2 to 1024 marks, got 1"):
        book(marks=1)
    with pytest.raises(InputError, match="at least 2 classes"):
        book(classes=1)
    with pytest.raises(InputError, match="no target, no count"):
        book(labels="codebook", target=1)
    with pytest.raises(InputError, match="are for labels='codebook'"):
        book(target=1, marks=3)
    with pytest.raises(InputError, match="set aside for a codebook"):
        book(target=1, carriers=stripes(4))
    with pytest.raises(InputError, match="not drawn on carriers"):
        book(kind="unrelated", carriers=stripes(4))
    with pytest.raises(InputError, match="a codebook has several"):
        book().mark()
    with pytest.raises(InputError, match="takes a codebook"):
        book(target=0).codebook()
