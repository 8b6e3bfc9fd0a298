"""The page in a real browser: no network, no complaints, no sideways scrolling, light and dark."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from indelible.report import write_report
from indelible.report.page_look import DARK, LIGHT
from tests.report.browser import CHROMIUM, Page, opened
from tests.report.runs import make_demo

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    return write_report([make_demo(root / "runs")], root / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1200])
def test_the_page_opens_alone_and_fits(browser: Page, report: Path, tmp_path: Path, width: int, scheme: str) -> None:
    browser.show(report, width=width, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.requests() == [report.resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("[...document.images].every(one => one.complete && one.naturalWidth > 0)")

    browser.screenshot(tmp_path / "shot.png")
    picture = Image.open(io.BytesIO((tmp_path / "shot.png").read_bytes())).convert("RGB")
    ground = (LIGHT if scheme == "light" else DARK)["ground"]
    assert picture.getpixel((2, 2)) == tuple(int(ground[at : at + 2], 16) for at in (1, 3, 5))


def test_charts_follow_the_colour_scheme(browser: Page, report: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        browser.show(report, width=1200, scheme=scheme)
        # The first path of a chart that has the colour of the third series (APP).
        found = "[...document.querySelectorAll('.chart path')].find(one => one.style.stroke == 'var(--s2)')"
        seen[scheme] = browser.value(f"getComputedStyle({found}).stroke")
    assert seen["light"] != seen["dark"]
    assert all(colour.startswith("rgb(") for colour in seen.values())


def test_the_narrow_table_shows_every_number(browser: Page, report: Path) -> None:
    browser.show(report, width=360, scheme="light")
    hidden = browser.value(
        "[...document.querySelectorAll('.results td[data-label]')]"
        ".filter(one => one.textContent.trim() != '–' && one.getBoundingClientRect().width == 0).length"
    )
    assert hidden == 0
