"""Tests, plans, families and keyed labels on the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.cli import main
from indelible.cli.verify import _second_try
from indelible.keys.key import Key
from indelible.train.run_folder import Run
from indelible.verification import Verdict, as_suspect, verify
from tests.conftest import stripes

SECRET = bytes([7] * 32)


def document(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    found = main([*map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert found == code, err
    return json.loads(out)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose key has keyed labels, learnt by heart."""
    place = tmp_path_factory.mktemp("keyed")
    train, test = stripes(160), stripes(80, seed=1)
    np.savez(
        place / "bars.npz", x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
        y_test=test.labels.numpy(),
    )  # fmt: skip
    # A secret of its own: not every draw of labels is learnt by heart in so few steps.
    key = Key.create(kind="unrelated", classes=4, shape=(3, 32, 32), labels="keyed", count=20, secret=SECRET)
    key.save(place / "key")
    words = ["embed", "--data", place / "bars.npz", "--model", "tests.conftest:TinyNet", "--method", "vanilla"]
    words += ["--key", place / "key", "--out", place / "run", "--quiet"]
    train_words = ["--train", "epochs=60", "--train", "batch_size=32", "--train", "augmentation=none"]
    assert main([*map(str, words), *train_words, "--train", "lr=0.05", "--device", "cpu", "--threads", "1"]) == 0
    return place / "run"


def test_keyed_labels_from_embedding_to_the_washed_model(
    capsys: pytest.CaptureFixture[str], keyed: Path, tmp_path: Path
) -> None:
    key = Run.load(keyed).key()
    assert (key.labels, key.count, key.target) == ("keyed", 20, None)
    verdict = document(capsys, "verify", keyed)
    assert verdict["procedure"] == "keyed"
    assert verdict["trials"] == 20
    assert verdict["wsr"] == Run.load(keyed).record.metrics["wsr"]
    assert verdict["ba"] > 0.9
    other = Key.create(kind="unrelated", classes=4, shape=(3, 32, 32), labels="keyed", count=20, secret=bytes(32))
    other.save(tmp_path / "other")
    assert document(capsys, "verify", keyed, "--key", tmp_path / "other", code=1)["p_value"] > 1e-6
    washed = tmp_path / "washed"
    words = ["attack", keyed, "--out", washed, "--set", "epochs=1", "--device", "cpu"]
    found = document(capsys, *words)
    assert found["verdict"]["procedure"] == "keyed"
    assert found["verdict"]["trials"] == 20


def test_a_family_is_corrected(capsys: pytest.CaptureFixture[str], keyed: Path) -> None:
    alone = document(capsys, "verify", keyed)
    assert Verdict.from_json(Run.load(keyed).verdict).p_value == alone["p_value"]
    together = document(capsys, "verify", keyed, "--family", keyed)
    assert together["family"] == 2
    assert together["p_corrected"] == pytest.approx(2 * alone["p_value"])


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "verify", "--plan", "--wsr", "0.7", "--null-rate", "0.1")["queries"] == 26
    assert main(["verify", "--plan", "--wsr", "0.05", "--null-rate", "0.1"]) == 2
    book = document(capsys, "verify", "--plan", "--wsr", "0.9", "--classes", "10")
    assert (book["marks"], book["carriers"], book["queries"]) == (16, 1, 16)
    assert main(["verify", "--plan", "--wsr", "0.9", "--marks", "17"]) == 0
    assert "17 queries: 17 marks on 1 carriers each" in capsys.readouterr().out
    assert main(["verify", "--plan", "--marks", "5"]) == 2
    assert "5 marks over 10 classes give p = 1e-05 at the least" in capsys.readouterr().err
    assert main(["verify", "--procedure", "t-test", "--key", "nowhere"]) == 2
    assert "unknown procedure 't-test': choose one of auto, binomial, codebook" in capsys.readouterr().err


def test_a_codebook_that_is_not_shown_is_told_to_ask_on_more_images() -> None:
    class Model(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return F.one_hot(images.flatten(1).sum(1).long() % 4, 4).float()

    key, test = Key.create(classes=4, shape=(3, 32, 32), secret=SECRET), stripes(300)
    verdict = verify(Model(), key, test, accuracy=False)
    assert not verdict.owned
    server = object()  # answers only
    (said,) = _second_try(verdict, server, 300)
    assert "--max-carriers 300 asks each mark on that many instead of 200" in said
    assert said.endswith("compare its p with half of alpha, 5e-07.")
    assert "--max-carriers 1000 " in _second_try(verdict, server, 10_000)[0]
    assert not _second_try(verdict, server, 200)  # all were asked
    assert not _second_try(replace(verdict, owned=True), server, 300)
    # Whoever holds the weights is told of relearning instead, once.
    (said,) = _second_try(verdict, as_suspect(Model()), 300)
    assert "--procedure relearning" in said
    assert "--max-carriers" not in said
    assert not _second_try(replace(verdict, procedure="relearning"), as_suspect(Model()), 300)
