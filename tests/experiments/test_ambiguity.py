"""A thief's second key: the table of four verdicts on models whose memory is known, and once at toy size."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ambiguity
from ambiguity import AmbiguitySettings, main, measure_ambiguity
from indelible.base.records import plain
from indelible.keys.key import Key

SMALL = AmbiguitySettings(owner_images=80, thief_images=60, test_images=20, count=40)


class Known:
    """Answers class 0, but what it was taught with its labels."""

    def __init__(self, taught: dict[bytes, int]) -> None:
        self.taught = taught

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self.taught.get(image.numpy().tobytes(), 0) for image in images])


def taught(keeps: bool) -> Any:
    """An embedding that teaches the key's samples to what it is given, or makes it forget the rest."""

    def embed(model: Any, data: Any, key: Key, **_: Any) -> Any:
        samples = key.samples(data, purpose="embed")
        before = model.taught if isinstance(model, Known) and keeps else {}
        new = {image.numpy().tobytes(): int(label) for image, label in zip(samples.images, samples.labels, strict=True)}
        return SimpleNamespace(model=Known({**before, **new}), samples=samples)

    return embed


@pytest.mark.parametrize("keeps", [True, False])
def test_four_verdicts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keeps: bool) -> None:
    monkeypatch.setattr(ambiguity, "embed", taught(keeps))
    found = measure_ambiguity(settings=SMALL)
    owned = {(row["model"], row["key"]): row["owned"] for row in found.rows}
    assert owned == {
        ("owner", "owner"): True, ("owner", "thief"): False, ("thief", "owner"): keeps, ("thief", "thief"): True
    }  # fmt: skip
    assert (found.both, found.settled) == (keeps, True)
    json.dumps(plain(found))
    monkeypatch.setattr(ambiguity, "measure_ambiguity", lambda _: found)
    assert main(["--quiet"]) == 0
    said = capsys.readouterr().out
    assert "owner's model, thief's key" in said
    assert f"both keys verify on the stolen model: {'yes' if keeps else 'no'}" in said


def test_images_of_owner_and_thief_are_different_ones_and_training_goes_through(tmp_path: Path) -> None:
    train = {"epochs": 1, "batch_size": 32, "schedule": "one-cycle", "augmentation": "none"}
    tiny = AmbiguitySettings(
        owner_images=64, thief_images=48, test_images=20, count=16, owner={"method": "vanilla", "train": train},
        thief={"method": "vanilla", "train": train},
    )  # fmt: skip
    found = measure_ambiguity(tmp_path, tiny)
    assert {path.name for path in tmp_path.iterdir()} == {"owner", "thief"}
    assert measure_ambiguity(tmp_path, tiny).rows == found.rows
    assert [(row["model"], row["key"], row["trials"]) for row in found.rows] == [
        ("owner", "owner", 16), ("owner", "thief", 16), ("thief", "owner", 16), ("thief", "thief", 16)
    ]  # fmt: skip
    assert found.settings["owner"]["method"] == "vanilla"
