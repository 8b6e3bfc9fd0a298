"""The picture of a codebook's verdict: counts, outlines, captions; hidden in a copy that leaves the house."""

import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.data.catalog import load
from indelible.keys.key import Key
from indelible.report import write_report
from indelible.report.mark_galleries import (
    Answers,
    answers_of,
    caption,
    codebook_tiles,
    heat_map,
    marks_once,
    write_contact_sheet,
)
from indelible.report.model_stages import collect
from tests.report.runs import SECRET, make_run, make_verdict
from tests.report.test_run_page import _outline

# Three marks, four classes, ten images of each. Scores 3 N - sum: mark 1 has its class 2 on top, mark 2 its class 0;
# mark 3 answers class 2 most often, but so do the others: its score for class 3 is higher than that for its own.
TABLE = [[0, 1, 9, 0], [8, 0, 2, 0], [0, 0, 6, 4]]
VERDICT = {"table": TABLE, "drawn": [2, 0, 2], "counts": {"marks": 3, "held": 2, "carriers": 10}, "p_value": 3e-11}


def _answers(**change: Any) -> Answers:
    found = answers_of({**VERDICT, **change})
    assert found is not None
    return found


def test_which_marks_have_their_class_on_top_by_hand() -> None:
    # Class sums 8, 1, 17, 4. Mark 1: (-8, 2, 10, -4); mark 2: (16, -1, -11, -4); mark 3: (-8, -1, 1, 8).
    assert _answers().own == (True, True, False)


def test_the_caption_is_a_plain_sentence() -> None:
    assert caption(_answers()) == (
        "2 of 3 marks are answered with their secret class; a model that never saw the key does as well with "
        "probability at most 3e-11."
    )
    assert caption(_answers(p_value=0.7)).endswith("at least 50 % of the time.")


@pytest.mark.parametrize(
    "change",
    [
        {"table": []}, {"table": None}, {"drawn": [2, 0]}, {"drawn": [2, 0, 4]},
        {"table": [[1, 2], [3]], "drawn": [0, 0]}, {"table": "x"}, {"table": [[0, "<b>"]], "drawn": [0]},
    ],
)  # fmt: skip
def test_verdicts_of_other_keys_and_damaged_ones_have_no_picture(change: dict[str, Any]) -> None:
    assert answers_of({**VERDICT, **change}) is None
    assert answers_of(make_verdict(owned=True, wsr=1.0, p_value=0.0)) is None
    assert answers_of(None) is None


def test_the_picture_has_every_count_and_outlines_the_secret_classes() -> None:
    svg = str(heat_map(_answers(), ["<a>", "b", "c", "d"]))
    _outline(svg)
    assert sorted(re.findall(r'middle">(\d+)</text>', svg)) == sorted(str(n) for row in TABLE for n in row if n)
    # Four classes share a width of 286 beside the 22 of the marks' numbers: the third is centred at 22 + 2.5 * 71.5.
    assert 'x="200.8" y="28.4" text-anchor="middle">9</text>' in svg
    assert "&lt;a&gt;" in svg
    assert "<a>" not in svg
    solid, dashed = re.findall(r'<path d="([^"]*)" fill="none" stroke="var\(--ink\)"[^>]*>', svg)
    assert (solid.count("M"), dashed.count("M")) == (2, 1)
    assert svg.index(dashed) < svg.index("stroke-dasharray")
    assert not re.search(r"#[0-9a-f]{6}", svg)  # colours are the page's, in light and dark


def test_many_classes_stay_readable() -> None:
    wide = [[0] * 100 for _ in range(4)]
    svg = str(heat_map(_answers(table=wide, drawn=[0, 50, 99, 3])))
    assert "class 0" in svg
    assert "class 99" in svg
    assert svg.count("<text") == 2 + 4


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    key = Key.create(classes=10, shape=(1, 28, 28), secret=SECRET)
    drawn = key.codebook().classes.tolist()
    table = [[150 if c == own else 1 for c in range(10)] for own in drawn]
    lost = [[9] * 10 for _ in drawn]
    more = {"drawn": drawn, "counts": {"marks": 16, "held": 16, "carriers": 200}}
    app = make_run(
        tmp_path / "runs" / "app", "app", settings={"eps": 0.02}, key=key,
        verdict={**make_verdict(owned=True, wsr=0.9, p_value=1e-16), **more, "table": table},
    )  # fmt: skip
    make_run(
        tmp_path / "runs" / "app-ft", "ft", verb="attack", parent=app,
        verdict={**make_verdict(owned=False, wsr=0.05, p_value=0.3), **more, "table": lost},
    )  # fmt: skip
    make_run(tmp_path / "runs" / "unmarked", "vanilla", settings={"fraction": 0.0}, key=key)
    return tmp_path / "runs"


def test_the_report_shows_pictures_and_one_tile_for_each_mark(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs], tmp_path / "report.html").read_text(encoding="utf-8")
    text = " ".join("".join(_outline(page).text).split())
    assert page.count('class="heat"') == 2
    assert "16 of 16 marks are answered with their secret class" in text
    assert "0 of 16 marks are answered with their secret class" in text
    assert page.count("data:image/png;base64,") == 17  # the plain image, and it with each mark
    assert "Marks on top" in text
    names, drawn = load("fashion-mini")[1].classes, Key.create(classes=10, shape=(1, 28, 28), secret=SECRET).codebook()
    assert f"16: {names[int(drawn.classes[15])]}" in text
    assert "Unmarked model" in text  # Vanilla with no share of marked images


def test_a_copy_that_leaves_the_house_does_not_tell_the_classes(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs], tmp_path / "hidden.html", samples=False).read_text(encoding="utf-8")
    assert "data:image" not in page
    assert 'class="heat"' not in page
    assert "16 of 16 marks are answered" in page  # says how many, not which
    assert "hidden in this copy, because they show which mark has which class" in page


def test_a_model_without_marked_images_is_called_unmarked(runs: Path) -> None:
    assert {entry.label: entry.marked for entry in collect([runs])} == {"APP with c-BN": True, "Unmarked model": False}


@pytest.mark.parametrize("kind", ["content", "unrelated"])
def test_the_sheet_of_a_codebook_has_a_tile_for_each_mark(kind: Any, tmp_path: Path) -> None:
    key, test = Key.create(kind=kind, classes=10, shape=(1, 28, 28), marks=6, secret=SECRET), load("fashion-mini")[1]
    samples = marks_once(key, test)
    assert samples.labels.tolist() == key.codebook().classes.tolist()
    whole = codebook_tiles(key, test)
    # Tiles of 28 x 28 enlarged five times, 140, with a gap of 2 on each side and a line of 16 below: four in a line.
    assert whole.size == (4 * 144, 2 * 160)
    shown = torch.from_numpy(np.array(whole)[2:142, 146:286, 0])
    assert torch.equal(shown[::5, ::5], samples.images[1, 0])
    write_contact_sheet(key, test, tmp_path / "sheet.png")
    assert stat.S_IMODE((tmp_path / "sheet.png").stat().st_mode) == 0o600
