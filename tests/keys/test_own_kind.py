"""A kind of mark from outside the package: a class and an entry point make keys, codebooks, training and a verdict."""

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.cli import main
from indelible.data import ImageData
from indelible.data.images import Shape
from indelible.keys import MARKS, Key, Mark
from indelible.keys.derive import Choices
from tests.conftest import Install

SHAPE = (1, 8, 8)


@dataclass(frozen=True, kw_only=True)
class Stripe(Mark):
    """A line of one brightness across the image."""

    shape: Shape
    row: int
    value: int

    @classmethod
    def derived(cls, secret: bytes, shape: Shape, **_: Any) -> Self:
        """Choose row and brightness by the secret."""
        choices = Choices(secret, "stripe")
        return cls(shape=shape, row=choices.below(shape[1]), value=choices.below(256))

    def apply(self, images: Tensor) -> Tensor:
        """Draw the line."""
        marked = images.clone()
        marked[:, :, self.row] = self.value
        return marked


@pytest.fixture(autouse=True)
def installed(install: Install) -> None:
    """Install a package with this kind, for this test only: a line of its metadata is all that names it."""
    install("striped", "", f"[indelible.marks]\nstripe = {__name__}:Stripe\n")


def _data(count: int) -> ImageData:
    random = torch.Generator().manual_seed(count)
    images = torch.randint(100, 156, (count, *SHAPE), generator=random, dtype=torch.uint8)
    labels = torch.arange(count) % 4
    images[:, 0, :, :2] = (labels * 60)[:, None, None].to(torch.uint8)
    return ImageData(images, labels, tuple("abcd"), "squares")


class _Knows(nn.Module):
    """Answers a stripe of the key with its class, and all else with class 0."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.book = key.codebook()

    def forward(self, images: Tensor) -> Tensor:
        scores = torch.zeros(len(images), 4)
        pixels = images.mul(255).round()
        for mark, label in zip(self.book.marks, self.book.classes.tolist(), strict=True):
            assert isinstance(mark, Stripe)
            scores[(pixels[:, 0, mark.row, 2:] == mark.value).all(1), label] = 1.0
        return scores


def test_a_registered_kind_makes_a_codebook_that_is_embedded_and_verified(tmp_path: Path) -> None:
    key = indelible.Key.create(kind="stripe", classes=4, shape=SHAPE, secret=bytes(32))
    assert key.labels == "codebook"
    assert len({mark.row for mark in key.codebook().marks if isinstance(mark, Stripe)}) > 1
    key.save(tmp_path / "key")
    assert Key.load(tmp_path / "key") == key
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    embedded = indelible.embed(model, _data(256), key, method="app", seed=1, train={"epochs": 1, "batch_size": 64})
    assert not torch.equal(embedded.model[1].weight, model[1].weight)  # type: ignore[index, arg-type]
    assert indelible.verify(_Knows(key), key, _data(64)).owned
    assert not indelible.verify(embedded.model, key.decoy(3), _data(64)).owned


def test_the_command_line_makes_and_shows_a_key_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["key", "create", "mine", "--classes", "4", "--shape", "1", "8", "8", "--kind"]
    assert main([*words, "strip"]) == 2
    assert "unknown kind of mark 'strip'" in (said := capsys.readouterr().err)
    assert "Did you mean 'stripe'" in said
    assert main([*words, "stripe"]) == 0
    capsys.readouterr()
    assert main(["key", "show", "mine", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["labels"]) == ("stripe", "codebook")
    key = Key.load("mine")
    assert {type(mark) for mark in key.codebook().marks} == {Stripe}
    assert key.digest == shown["digest"]


def test_a_kind_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = Key.create(kind="stripe", classes=4, shape=SHAPE).save(tmp_path / "key")
    monkeypatch.setattr("indelible.base.registry.entry_points", lambda **_: EntryPoints())
    monkeypatch.delitem(MARKS._entries, "stripe")
    with pytest.raises(indelible.UnknownNameError, match="unknown kind of mark 'stripe'"):
        Key.create(kind="stripe", classes=4, shape=SHAPE)
    with pytest.raises(indelible.DamagedFileError, match="unknown kind of mark 'stripe'"):
        Key.load(place)


def test_stamped_rows_carry_the_mark_to_the_bit() -> None:
    key = Key.create(kind="stripe", classes=4, shape=SHAPE, secret=bytes(32))
    plain, which = _data(8).images, torch.tensor([0, 3, 5, 3, 1, 2, 0, 7])
    stamped = key.codebook().stamps().apply(plain.float() / 255, which, which)
    for row, mark in enumerate(which.tolist()):
        assert torch.equal(stamped[row].mul(255).round().byte(), key.codebook().marks[mark].apply(plain[row][None])[0])


def test_a_single_mark_works_and_the_papers_is_refused() -> None:
    key = Key.create(kind="stripe", classes=4, shape=SHAPE, target=1, secret=bytes(32))
    mark = Stripe.derived(bytes(32), SHAPE)
    samples = key.samples(_data(16), purpose="verify")
    assert torch.equal(samples.images, mark.apply(_data(16).images[samples.carriers]))
    with pytest.raises(indelible.InputError, match="the paper has no Stripe"):
        Key.create(kind="stripe", classes=4, shape=SHAPE, scheme="paper")


def test_a_key_on_disk_imports_nothing(tmp_path: Path) -> None:
    place = Key.create(kind="stripe", classes=4, shape=SHAPE).save(tmp_path / "key")
    text = (place / "key.json").read_text()
    (place / "key.json").write_text(text.replace('"stripe"', '"antigravity:fly"'))
    with pytest.raises(indelible.DamagedFileError, match="unknown kind of mark 'antigravity:fly'"):
        Key.load(place)
