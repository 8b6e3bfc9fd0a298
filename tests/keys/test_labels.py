"""Keyed labels: never the true class, uniform, bound to the whole set; keys that carry them; samples on disk."""

import hashlib
import hmac
import stat
from collections import Counter
from pathlib import Path

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.base.files import canonical_json, read_json, write_json, write_tensors
from indelible.base.merkle import tree_root
from indelible.data.digests import image_digests
from indelible.keys.derive import Choices, expand
from indelible.keys.key import Key
from indelible.keys.labels import drawn_labels, keyed_labels, label_key, sample_salts, set_leaf, set_leaves
from indelible.keys.samples import WatermarkSamples
from tests.conftest import SECRET, SHAPE, stripes


def make(**settings: object) -> Key:
    settings = {"kind": "content", "classes": 4, "shape": SHAPE, "labels": "keyed", "secret": SECRET, **settings}
    return Key.create(**settings)  # type: ignore[arg-type]


def test_numbers_are_those_of_one_at_a_time() -> None:
    for bound in (3, 4, 9, (1 << 63) + 1):  # the last rejects about half of all words
        one, many = Choices(SECRET, "test"), Choices(SECRET, "test")
        assert many.numbers(bound, 40).tolist() == [one.below(bound) for _ in range(40)]
    assert Choices(SECRET, "test").numbers(5, 0).tolist() == []


def test_labels_by_an_independent_reference() -> None:
    images = torch.arange(3 * 12, dtype=torch.uint8).reshape(3, 3, 2, 2)
    true = [0, 3, 1]

    def sha(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    salts = Choices(SECRET, "samples/salts").bytes_(96)
    leaves = []
    for row in range(3):
        name = sha(b"indelible/image/1:3,2,2:", bytes(range(12 * row, 12 * row + 12)))
        own = bytes([0, 0, 0, true[row] + 1])
        leaves.append(sha(b"\0indelible/label set/1:", salts[32 * row : 32 * row + 32], name, own))
    root = sha(b"\1", sha(b"\1", leaves[0], leaves[1]), leaves[2])
    about = sha(canonical_json({"classes": 4, "count": 3, "true": True}), root)
    shown = expand(SECRET, "labels/key")
    choices = Choices(hmac.new(shown, about, "sha256").digest(), "labels/draw")
    expected = [[label for label in range(4) if label != own][choices.below(3)] for own in true]
    assert keyed_labels(SECRET, image_digests(images), torch.tensor(true), 4).tolist() == expected
    # Some of them, as an auditor draws them who was shown no more.
    rows = torch.tensor([2, 0])
    found = drawn_labels(shown, root, rows, torch.tensor([1, 0]), classes=4, count=3)
    assert found.tolist() == [expected[2], expected[0]]


def test_uniform_over_the_classes_that_are_not_the_true_one() -> None:
    true = torch.arange(30_000) % 4
    rows = torch.arange(30_000)
    labels = drawn_labels(SECRET, bytes(32), rows, true, classes=4, count=30_000)
    assert not bool((labels == true).any())
    for own in range(4):
        counts = Counter(labels[true == own].tolist())
        assert set(counts) == set(range(4)) - {own}
        # 7,500 draws of three classes: 2,500 each, standard deviation 41
        assert all(abs(count - 2500) < 205 for count in counts.values())
    free = Counter(drawn_labels(SECRET, bytes(32), torch.arange(40_000), None, classes=4, count=40_000).tolist())
    assert all(abs(free[label] - 10_000) < 433 for label in range(4))


def test_any_change_draws_all_labels_anew() -> None:
    """Otherwise a forger would search for each image's label by itself."""
    images, true = stripes(200).images, stripes(200).labels
    digests = image_digests(images)
    labels = keyed_labels(SECRET, digests, true, 4)
    lighter = images.clone()
    lighter[-1, 0, 0, 0] ^= 1
    other_class = true.clone()
    other_class[-1] = (true[-1] + 1) % 4
    for changed in (
        keyed_labels(SECRET, image_digests(lighter), true, 4),
        keyed_labels(SECRET, digests, other_class, 4),
        keyed_labels(bytes(32), digests, true, 4),
        keyed_labels(SECRET, digests[::-1], true.flip(0), 4).flip(0),
    ):
        agreeing = int((changed == labels)[:-1].sum())
        # A third of 199 by chance: 66, standard deviation 6.7
        assert 33 < agreeing < 100
    salt = sample_salts(SECRET, 1)[0]
    leaves = {set_leaf(salt, digests[0], own) for own in (None, 0, 1, 255, 256)}
    assert len(leaves | {set_leaf(bytes(32), digests[0], 0), set_leaf(salt, digests[1], 0)}) == 7
    assert sample_salts(SECRET, 3) == sample_salts(SECRET, 200)[:3], "a salt does not depend on how many there are"


@pytest.mark.parametrize("kind", ["content", "noise", "unrelated"])
def test_samples_of_a_keyed_key(kind: str, tmp_path: Path) -> None:
    key = make(kind=kind, count=30)
    data = stripes(200)
    samples = key.samples(data, purpose="embed")
    assert len(samples) == 30
    assert samples.labels.unique().numel() == 4
    if kind == "unrelated":
        assert samples.true is None
    else:
        assert samples.true is not None
        assert torch.equal(samples.true, data.labels[samples.carriers])
        assert not bool((samples.labels == samples.true).any())
    again = Key.load(key.save(tmp_path / "key"))
    assert again == key
    assert (again.labels, again.count, again.target) == ("keyed", 30, None)
    assert torch.equal(again.samples(data, purpose="embed").labels, samples.labels)
    # An auditor who is shown the label key, and not the secret, comes to the same labels, also of some samples only.
    root, rows = tree_root(set_leaves(SECRET, image_digests(samples.images), samples.true)), torch.tensor([7, 3, 21])
    known = None if samples.true is None else samples.true[rows]
    shown = drawn_labels(label_key(SECRET), root, rows, known, classes=4, count=30)
    assert torch.equal(shown, samples.labels[rows])
    assert torch.equal(key.questions(data, None).labels, samples.labels)
    with pytest.raises(InputError, match="owner images"):
        key.questions(None, data)
    assert len(key.samples(data, purpose="verify", count=12)) == 12
    assert key.decoy(0).labels == "keyed"


def test_fixed_keys_are_asked_on_test_images_and_keep_their_digests() -> None:
    key = make(labels="fixed", target=1)
    assert "labels" not in key.public()
    assert "count" not in key.public()
    asked = key.questions(None, stripes(100))
    assert torch.equal(asked.images, key.samples(stripes(100), purpose="verify").images)
    counted = make(labels="fixed", target=1, count=7)
    assert len(counted.samples(stripes(100), purpose="embed")) == 7
    assert counted.digest != key.digest


def test_wrong_settings() -> None:
    with pytest.raises(UnknownNameError, match="fixed, keyed"):
        make(labels="random")
    with pytest.raises(InputError, match="target=2"):
        make(target=2)
    with pytest.raises(InputError, match="at least one sample"):
        make(count=0)
    with pytest.raises(InputError, match="3 classes"):
        make(classes=2)
    with pytest.raises(InputError, match="one class"):
        make(scheme="paper")
    with pytest.raises(InputError, match=r"has 40 images, too few for 41 watermark samples\. Give more"):
        make(count=41).samples(stripes(40), purpose="embed")
    with pytest.raises(InputError, match="true classes"):
        keyed_labels(SECRET, ["00" * 32] * 2, torch.zeros(3, dtype=torch.int64), 4)
    assert make().count == 100
    with pytest.raises(InputError, match="one target class"):
        _ = make().one_target
    assert make(labels="fixed", target=2).one_target == 2


def test_a_key_of_the_first_version_is_refused(tmp_path: Path) -> None:
    """Its labels were drawn otherwise: they would be misses, and misses speak for the suspect."""
    make(count=9).save(tmp_path / "key")
    make(labels="fixed", target=1).save(tmp_path / "fixed")
    path = tmp_path / "key" / "key.json"
    write_json(path, {**read_json(path), "version": 1})
    with pytest.raises(DamagedFileError, match="version 1 with keyed labels, this package reads version 2"):
        Key.load(tmp_path / "key")
    assert Key.load(tmp_path / "fixed").public()["version"] == 1


class TestSamplesOnDisk:
    def test_written_and_read(self, tmp_path: Path) -> None:
        samples = make(count=9).samples(stripes(40), purpose="embed")
        samples.save(tmp_path / "samples.safetensors")
        assert stat.S_IMODE((tmp_path / "samples.safetensors").stat().st_mode) == 0o600
        again = WatermarkSamples.load(tmp_path / "samples.safetensors")
        assert again.true is not None
        assert samples.true is not None
        for one, two in ((again.images, samples.images), (again.labels, samples.labels), (again.true, samples.true)):
            assert torch.equal(one, two)
        assert samples.subset(torch.tensor([4, 2])).carriers.tolist() == samples.carriers[[4, 2]].tolist()

    def test_what_is_not_samples_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.safetensors"
        rows = torch.zeros(2, dtype=torch.int64)
        images = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)
        named = {"kind": "watermark samples"}
        for tensors, about, says in (
            ({"images": images, "labels": rows, "carriers": rows}, {}, "does not hold watermark samples"),
            ({"images": images, "labels": rows}, named, "does not hold watermark samples"),
            ({"images": images, "labels": rows.float(), "carriers": rows}, named, "of other types than uint8 images"),
            ({"images": images, "labels": rows[:1], "carriers": rows}, named, r"2 samples need 2 labels, got \(1,\)"),
        ):
            write_tensors(path, tensors, about)
            with pytest.raises(DamagedFileError, match=says):
                WatermarkSamples.load(path)
