"""A codebook asked of every kind of suspect: the same verdict everywhere, and one clear line where that cannot be."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import indelible
from indelible.base.errors import InputError
from indelible.cli import main
from indelible.data.digests import image_digests
from indelible.keys.content import ContentMark
from indelible.keys.key import Key
from indelible.verification import planned, session_plan
from indelible.verification.suspects import BadAnswerError, HttpSuspect, Persistence, read_log
from indelible.verification.suspects.suspect_places import open_suspect
from tests.conftest import SECRET, SHAPE, stripes
from tests.verification.suspects.servers import Nasty, misbehaving
from tests.verification.suspects.test_kinds import bars_onnx
from tests.waiting import PATIENCE

KEY = Key.create(kind="content", classes=4, shape=SHAPE, secret=SECRET)
BOOK = KEY.codebook()
TEXTS: list[Any] = [
    (mark.mask().numpy(), np.array(mark.colour)[:, None], own)
    for mark, own in zip(BOOK.marks, BOOK.classes.tolist(), strict=True)
    if isinstance(mark, ContentMark)
]
CARRIERS = stripes(20, seed=1)
OPTIONS: dict[str, Any] = {"accuracy": False}


def bar(image: np.ndarray[Any, Any]) -> int:
    return int(image.mean((0, 2)).reshape(4, 8).mean(1).argmax())


def label(image: np.ndarray[Any, Any]) -> int:
    """The class of the mark that stands on the image, else the brightest bar."""
    for mask, colour, own in TEXTS:
        if (image[:, mask] == colour).all():
            return int(own)
    return bar(image)


class Direct:
    def __init__(self, rule: Any = label) -> None:
        self.rule, self.asked = rule, 0

    def predict(self, images: Tensor) -> Tensor:
        self.asked += len(images)
        return torch.tensor([self.rule(image) for image in images.numpy()])


@pytest.fixture(scope="module")
def expected() -> indelible.Verdict:
    return indelible.verify(Direct(), KEY, CARRIERS, **OPTIONS)


@pytest.fixture
def site() -> Iterator[Nasty]:
    with misbehaving(Nasty(label)) as made:
        yield made


def answered(path: Path, digests: Any, rule: Any = label, images: Tensor | None = None) -> Path:
    rows = [] if images is None else [rule(image) for image in images.numpy()]
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([["digest", "label"], *zip(digests, rows, strict=True)])
    return path


def test_a_model_that_knows_the_marks_is_shown_and_a_stranger_is_not(expected: indelible.Verdict) -> None:
    assert expected.owned
    assert (expected.procedure, expected.queries, expected.counts["marks"]) == ("codebook", 16 * 20, 16)
    assert expected.wsr == 1.0
    stranger = indelible.verify(Direct(bar), KEY, CARRIERS, **OPTIONS)
    assert (stranger.owned, stranger.p_value) == (False, 1.0), "no answer depends on the mark"


def test_one_carrier_a_mark_is_enough() -> None:
    made = session_plan(KEY, 16 * 20, wsr=1.0)
    assert made is not None
    assert made.carriers == 1
    assert indelible.verify(Direct(), KEY, CARRIERS, **made.options, **OPTIONS).queries == 16


def test_mark_by_mark_stops_early() -> None:
    suspect = Direct()
    verdict = indelible.verify(suspect, KEY, CARRIERS, procedure="sequential", **OPTIONS)
    assert "taught" not in verdict.sentence  # it stopped early; no copy was trained
    assert verdict.owned
    assert verdict.queries == suspect.asked < 16 * 20
    assert verdict.queries % 20 == 0, "never inside a mark"
    refused = indelible.verify(Direct(bar), KEY, CARRIERS, procedure="sequential", **OPTIONS)
    assert not refused.owned


def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    suspect = open_suspect(bars_onnx(tmp_path / "m.onnx"), classes=4, input={"dtype": "float32"})
    found = indelible.verify(suspect, KEY, CARRIERS, **OPTIONS)
    assert found == indelible.verify(Direct(bar), KEY, CARRIERS, **OPTIONS)


def test_predictions(tmp_path: Path, expected: indelible.Verdict) -> None:
    plan = planned(lambda suspect: indelible.verify(suspect, KEY, CARRIERS, **OPTIONS), seed=1)
    whole = answered(tmp_path / "whole.csv", image_digests(plan), images=plan)
    assert indelible.verify(open_suspect(whole, classes=4), KEY, CARRIERS, **OPTIONS) == expected
    # Two marks were left out: 40 of 320 images.
    samples = KEY.samples(CARRIERS, purpose="verify")
    kept = samples.images[: 14 * 20]
    part = answered(tmp_path / "part.csv", image_digests(kept), images=kept)
    with pytest.raises(BadAnswerError, match="no prediction for 40 of 320 images, the first of them query 280"):
        indelible.verify(open_suspect(part, classes=4), KEY, CARRIERS, **OPTIONS)


def test_http_and_its_log(site: Nasty, tmp_path: Path, expected: indelible.Verdict) -> None:
    log = tmp_path / "asked.jsonl"
    patient = Persistence(timeout=PATIENCE, tries=1)
    suspect = open_suspect(site.url, classes=4, input={"dtype": "uint8"}, persistence=patient, batch=64)
    assert isinstance(suspect, HttpSuspect)
    assert indelible.verify_logged(suspect, KEY, CARRIERS, log=log, **OPTIONS) == expected
    again = indelible.verify(open_suspect(log, classes=4), KEY, CARRIERS, **OPTIONS)
    assert again == expected
    marks = {
        digest: row // 20 for row, digest in enumerate(image_digests(KEY.samples(CARRIERS, purpose="verify").images))
    }
    order = [marks[digest] for digest in read_log(log).answers]
    assert order != sorted(order), "the marks are mixed: the order does not tell which belong together"
    # A log of fewer questions than are counted now.
    small = tmp_path / "small.jsonl"
    indelible.verify_logged(suspect, KEY, CARRIERS, log=small, max_samples=16, **OPTIONS)
    with pytest.raises(BadAnswerError, match="no prediction for 304 of 320 images"):
        indelible.verify(open_suspect(small, classes=4), KEY, CARRIERS, **OPTIONS)


def test_a_server_on_the_command_line(site: Nasty, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    KEY.save(tmp_path / "key")
    train = stripes(40)
    np.savez(
        tmp_path / "bars.npz", x_train=train.images.numpy(), y_train=train.labels.numpy(),
        x_test=CARRIERS.images.numpy(), y_test=CARRIERS.labels.numpy(),
    )  # fmt: skip
    words = ["verify", "--key", tmp_path / "key", "--data", tmp_path / "bars.npz", "--suspect", site.url]
    words += ["--input", "dtype=uint8", "--log", tmp_path / "asked.jsonl", "--wsr", "0.9", "--json"]
    assert main([str(word) for word in words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"]["test"], found["plan"]["carriers"], found["queries"]) == ("codebook", 2, 32)
    recount = [*words[:5], "--suspect", tmp_path / "asked.jsonl", "--json"]
    assert main([str(word) for word in recount]) == 0
    assert json.loads(capsys.readouterr().out)["p_value"] == found["p_value"]
    assert main([str(word) for word in recount[:-1]]) == 0
    assert "plan: 32 samples of the key: 32 queries" in capsys.readouterr().err, "said, and taken from the log"
    assert main([str(word) for word in [*recount, "--alpha", "0.05"]]) == 2
    assert "made with --procedure codebook --alpha 1e-06" in capsys.readouterr().err
    few = [*words[:7], *words[7:9], "--log", tmp_path / "few.jsonl", "--max-samples", "7"]
    assert main([str(word) for word in few]) == 2
    assert "every one of its 16 marks: at least 16 queries, got 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alpha": 1e-12}, "16 marks over 4 classes can give p = 2e-10 at the least, which is above alpha = 1e-12"),
        ({"max_samples": 15}, "a number of samples from 16 to 320 is possible here, got 15"),
        ({"max_samples": 321 + 15}, "from 16 to 320 is possible here, got 336"),
        ({"procedure": "binomial"}, "not for codebook labels"),
    ],
)
def test_one_line_says_what_is_wrong(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        indelible.verify(Direct(), KEY, CARRIERS, **options, **OPTIONS)
    assert "\n" not in str(caught.value)
    suspect = Direct()
    with pytest.raises(InputError, match=says):
        indelible.verify(suspect, KEY, CARRIERS, **options, **OPTIONS)
    assert suspect.asked == 0, "refused before the suspect is asked"
