"""A suspect from outside the package: one registered class, opened by the scheme of its address."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import Tensor

import indelible
from indelible.data import ImageData
from indelible.keys import ContentMark, Key
from indelible.verification.suspects import AddressedSuspect
from tests.conftest import Install

SHAPE = (1, 8, 8)
CARRIERS = ImageData(torch.full((40, *SHAPE), 7, dtype=torch.uint8), torch.arange(40) % 4, tuple("abcd"), "grey")


@dataclass(frozen=True)
class Thief(AddressedSuspect):
    """Answers every mark of the key in a folder with its class: ``thief://FOLDER``."""

    key: Key
    options: dict[str, Any]

    @classmethod
    def open(cls, place: str, *, classes: int, **options: Any) -> Self:
        """Read the key that it stole."""
        assert classes == 4
        return cls(Key.load(place.removeprefix("thief://")), options)

    def predict(self, images: Tensor) -> Tensor:
        """Find the mark."""
        found, book = torch.zeros(len(images), dtype=torch.int64), self.key.codebook()
        for mark, label in zip(book.marks, book.classes.tolist(), strict=True):
            assert isinstance(mark, ContentMark)
            found[(mark.apply(images) == images).flatten(1).all(1)] = label
        return found


@pytest.fixture(autouse=True)
def installed(install: Install) -> None:
    """Install a package with this suspect, for this test only: a line of its metadata is all that names it."""
    install("thieves", "", f"[indelible.suspects]\nthief = {__name__}:Thief\n")


def test_verify_asks_a_registered_suspect(tmp_path: Path) -> None:
    key = Key.create(classes=4, shape=SHAPE, secret=bytes(32))
    place = f"thief://{key.save(tmp_path / 'key')}"
    suspect = indelible.open_suspect(place, classes=4, batch=5)
    assert isinstance(suspect, Thief)
    assert suspect.options == {"batch": 5}
    assert indelible.verify(suspect, key, CARRIERS).owned
    assert not indelible.verify(suspect, key.decoy(0), CARRIERS).owned
    logged = indelible.verify_logged(suspect, key, CARRIERS, log=tmp_path / "queries.jsonl")
    assert logged.owned
    recorded = indelible.open_suspect(tmp_path / "queries.jsonl", classes=4)
    assert indelible.verify(recorded, key, CARRIERS).owned


def test_a_scheme_that_nobody_registered_is_refused_with_those_there_are() -> None:
    with pytest.raises(indelible.UnknownNameError, match=r"unknown scheme of a suspect 'theif'.*Did you mean 'thief'"):
        indelible.open_suspect("theif://x", classes=4)
