"""The page: complete, safe, deterministic, with and without what is optional."""

import base64
import html.parser
import io
import re
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import indelible
from indelible.base.errors import StorageError
from indelible.keys.key import Key
from indelible.report import write_report
from indelible.report.documents import again
from indelible.report.mark_galleries import png_uri
from indelible.train.job import Trained, train_unmarked
from indelible.train.run_folder import Architecture, Run
from tests.report.runs import SECRET, make_demo, make_run, make_verdict
from tests.values import method_value

_VOID = {"meta", "link", "img", "br", "hr", "wbr", "input"}


class _Outline(html.parser.HTMLParser):
    """Checks that tags nest, and notes headings, ids, images and what would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.alts: list[str | None] = []
        self.loaded: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.seen.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if identity := found.get("id"):
            self.ids.append(identity)
        if tag == "img":
            self.alts.append(found.get("alt"))
        for name in ("src", "href", "xlink:href", "action"):
            target = found.get(name) or ""
            if target and not target.startswith(("data:", "#")):
                self.loaded.append(target)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _outline(page: str) -> _Outline:
    outline = _Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("demo")
    return make_demo(root)


@pytest.fixture(scope="module")
def page(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report([demo], tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_html_with_headings_in_order(page: str) -> None:
    outline = _outline(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids))
    assert len(outline.alts) == 12
    assert all(outline.alts)


def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    outline = _outline(page)
    assert outline.loaded == []
    assert "script" not in outline.seen
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")
    assert "default-src 'none'" in page


def test_the_order_of_the_sections(page: str) -> None:
    places = [page.index(f'id="{name}"') for name in ("results", "samples", "curves", "verdicts", "made")]
    assert page.index('class="outcome"') < places[0]
    assert places == sorted(places)


def test_the_table_shows_the_numbers(page: str) -> None:
    text = " ".join("".join(_outline(page).text).split())
    assert "After fine-tuning (FT), the verdict holds for c-BN only (eps 0; p = 3e-12)" in text
    assert "<strong>92.0</strong>" in page
    assert page.count("<strong>") == 1
    for shown in ("12.3", "98.8", "< 1e-300", "1,261 / 1,800", "2,000 images/s", "the key was fixed before"):
        assert shown in text, shown


def test_the_same_records_give_the_same_bytes(demo: Path, page: str, tmp_path: Path) -> None:
    assert write_report([demo], tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_the_secret_is_nowhere(page: str) -> None:
    content = page.encode()
    assert SECRET.hex().encode() not in content.lower()
    assert SECRET not in content
    for start in range(0, 64, 16):
        assert SECRET.hex()[start : start + 16] not in page.lower()


def test_hidden_samples_leave_no_picture_and_no_target_class(demo: Path, tmp_path: Path) -> None:
    hidden = write_report([demo], tmp_path / "hidden.html", samples=False).read_text(encoding="utf-8")
    assert "data:image" not in hidden
    assert "Target class" not in hidden
    assert "hidden in this copy" in hidden


def test_a_shown_sample_says_that_it_gives_the_mark_away(page: str) -> None:
    assert "give the marks away" in page
    assert "samples=False" in page
    assert page.count("data:image/png;base64,") == 12


def test_strings_of_users_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    verdict = {**make_verdict(owned=True, wsr=1.0, p_value=0.0), "sentence": evil, "test": evil, "assumptions": [evil]}
    history = [{"epoch": 1, "loss": 1.0}]
    first = make_run(
        tmp_path / "<script>alert(2)<" / "x", evil, settings={evil: evil}, verdict=verdict, history=history
    )
    second = make_run(tmp_path / "b", evil, data=evil, verdict=verdict, history=history, seed=3)
    page = write_report([first, second], tmp_path / "report.html", title=evil).read_text(encoding="utf-8")
    assert "script" not in _outline(page).seen
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;script&gt;alert(2)" in page


def test_without_matplotlib_the_page_says_what_to_install(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = write_report([demo], tmp_path / "plain.html").read_text(encoding="utf-8")
    _outline(page)
    assert "pip install &#34;indelible[plots]&#34;" in page or 'pip install "indelible[plots]"' in page
    assert 'class="chart"' not in page


def test_pictures_that_cannot_be_drawn_are_explained(tmp_path: Path) -> None:
    page = write_report([make_run(tmp_path / "v")], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The pictures could not be drawn" in page
    assert "has no key" in page


def test_unrelated_marks_have_no_original(tmp_path: Path) -> None:
    key = Key.create(kind="unrelated", classes=10, shape=(1, 28, 28), target=3, secret=SECRET)
    page = write_report([make_run(tmp_path / "v", key=key)], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Images from another domain" in page
    assert page.count("data:image/png;base64,") == 6


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB")])
def test_any_number_of_channels_becomes_a_picture(channels: int, mode: str) -> None:
    """112 / 8: each pixel is a square of 14; of two channels the first is shown, of four the first three."""
    image = torch.arange(channels * 48, dtype=torch.uint8).reshape(channels, 8, 6)
    kind, content = png_uri(image).split(",")
    assert kind == "data:image/png;base64"
    found = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (found.format, found.mode, found.size) == ("PNG", mode, (6 * 14, 8 * 14))
    for row, column in ((0, 0), (5, 2), (7, 5)):
        shown = {found.getpixel((14 * column + x, 14 * row + y)) for x in (0, 13) for y in (0, 13)}
        first = [48 * channel + 6 * row + column for channel in range(3)]
        assert shown == ({first[0]} if mode == "L" else {tuple(first)})


def test_a_failed_write_keeps_the_old_page(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="disk is full"):
        write_report([demo], out)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_the_command_that_attacks_again(demo: Path) -> None:
    command = again(Run.load(demo / "app-ft"))
    assert command.startswith(f"indelible attack {demo}/app --method ft --protocol sound --set lr=0.05 --seed 0 --out ")


@pytest.mark.parametrize("marked", [True, False], ids=["embedded", "unmarked"])
def test_the_lines_that_train_again_give_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], marked: bool
) -> None:
    split = indelible.Split(torch.arange(64), torch.arange(64, 96), 7500, 0)
    train, _ = indelible.load("fashion-mini")
    owner = train.subset(split.owner)
    architecture = Architecture(name="resnet-w8", classes=10, shape=(1, 28, 28))
    key = Key.create(classes=10, shape=(1, 28, 28), target=3, secret=SECRET) if marked else None
    how = indelible.TrainSettings(epochs=1, batch_size=32, max_steps=1)
    made: indelible.Embedded | Trained
    if key is not None:
        made = indelible.embed(
            architecture.build(seed=5),
            owner,
            key,
            method_value("vanilla", key, "paper", fraction=0.1),
            scale="paper",
            seed=5,
            train=how,
        )
    else:
        made = train_unmarked(architecture.build(seed=5), owner, how, seed=5)
    run = Run.save(
        tmp_path / "run", model=made.model, record=made.record, architecture=architecture, data="fashion-mini",
        split=split, key=key,
    )  # fmt: skip
    capsys.readouterr()
    exec(again(run), {})  # noqa: S102 - these are the lines that the page tells people to run
    assert capsys.readouterr().out == "same bits: True\n"
