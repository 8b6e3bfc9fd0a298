"""The page of tables in a real browser: alone, quiet, sortable by click and keyboard, with details on demand."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from indelible.bench.measurement import results_of
from indelible.report import measured_tables, reported_tables, write_tables
from indelible.report.page_look import DARK, LIGHT
from tests.report.browser import CHROMIUM, Page, opened
from tests.report.results import make_results

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary"),
]
# Row headings of the first group of the first table, from top to bottom.
GROUP = "document.querySelector('table.paper').tBodies[0]"
ORDER = f"[...{GROUP}.querySelectorAll('th[scope=row]')].map(one => one.textContent)"
SHARED = f"{GROUP}.querySelector('tr:not(.band)').firstElementChild.textContent"
DETAIL = "document.getElementById('detail')"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tables")
    grids = measured_tables([results_of(make_results(seeds=(0, 1)), "x")])
    return {
        "reported": write_tables(reported_tables(), root / "reported.html"),
        "measured": write_tables(grids, root / "measured.html"),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


def _press(browser: Page, key: str) -> None:
    codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40}
    text: dict[str, Any] = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
            **(text if kind == "keyDown" else {}),
        )  # fmt: skip


def _point_at(browser: Page, selector: str) -> None:
    found = f"document.querySelector({selector!r})"
    browser.value(f"{found}.scrollIntoView({{block: 'center'}})")
    box = browser.value(f"(at => [at.x + at.width / 2, at.y + at.height / 2])({found}.getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])


def _wait(browser: Page, condition: str) -> None:
    """Wait for the page's own timers, a second at most, inside the page."""
    look = f"""new Promise(done => {{
        const until = performance.now() + 1000;
        const look = () => ({condition}) ? done(true) : performance.now() > until ? done(false) : setTimeout(look, 20);
        look();
    }})"""
    found = browser.call("Runtime.evaluate", expression=look, awaitPromise=True, returnByValue=True)
    assert found["result"]["value"], condition


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("reported", 360, "light"),
        ("reported", 1600, "dark"),
        ("measured", 360, "dark"),
        ("measured", 768, "light"),
        ("measured", 1600, "light"),
    ],
)
def test_the_page_opens_alone_and_fits(
    browser: Page, pages: dict[str, Path], tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    browser.show(pages[name], width=width, scheme=scheme)
    assert browser.requests() == [pages[name].resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    # What a narrow screen cannot show at once is reached inside the table, not by moving the page.
    assert browser.value("[...document.querySelectorAll('.scroll')].every(one => one.tabIndex === 0)")
    browser.screenshot(tmp_path / "shot.png")
    picture = Image.open(io.BytesIO((tmp_path / "shot.png").read_bytes())).convert("RGB")
    ground = (LIGHT if scheme == "light" else DARK)["ground"]
    assert picture.getpixel((2, 2)) == tuple(int(ground[at : at + 2], 16) for at in (1, 3, 5))
    assert browser.complaints() == []


def test_a_heading_sorts_by_click_and_a_third_click_restores(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["reported"], width=1200, scheme="light")
    click = "[...document.querySelectorAll('.sort')].find(one => one.textContent == 'ANP').click()"
    state = "[...document.querySelectorAll('.sort')].find(one => one.textContent == 'ANP').parentElement.ariaSort"
    seen = []
    for _ in range(3):
        browser.value(click)
        seen.append((browser.value(state), browser.value(ORDER), browser.value(SHARED)))
    # Content after ANP: Vanilla 25.34, EW 66.24, CW 27.39, APP 99.56.
    assert seen == [
        ("descending", ["APP", "EW", "CW", "Vanilla"], "Content"),
        ("ascending", ["Vanilla", "CW", "EW", "APP"], "Content"),
        ("none", ["Vanilla", "EW", "CW", "APP"], "Content"),
    ]
    assert browser.value("document.getElementById('said').textContent") == "ANP: as printed"
    assert browser.complaints() == []


def test_names_and_groups_sort_too(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["reported"], width=1200, scheme="light")
    browser.value("document.querySelectorAll('.sort')[1].click()")
    assert browser.value(ORDER) == ["APP", "CW", "EW", "Vanilla"]
    browser.value("document.querySelectorAll('.sort')[0].click(); document.querySelectorAll('.sort')[0].click()")
    assert browser.value(SHARED) == "Unrelated"
    assert browser.value(ORDER) == ["Vanilla", "EW", "CW", "APP"]


def test_sorting_works_from_the_keyboard(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["reported"], width=1200, scheme="light")
    browser.value("[...document.querySelectorAll('.sort')].find(one => one.textContent == 'AvgDrop').focus()")
    _press(browser, "Enter")
    assert browser.value(ORDER) == ["CW", "Vanilla", "EW", "APP"]  # 68.36, 59.15, 51.20, 10.10
    assert browser.value("document.activeElement.textContent") == "AvgDrop"


def test_pointing_at_a_number_shows_what_stands_behind_it(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["measured"], width=1200, scheme="light")
    assert browser.value(f"{DETAIL}.hidden")
    # The fifth row is APP, its fifth number is after ANP.
    _point_at(browser, "table.paper tbody tr:nth-of-type(6) td:nth-of-type(5) .value")
    _wait(browser, f"!{DETAIL}.hidden")
    text = browser.value(f"{DETAIL}.innerText")
    assert "Content, APP: WSR after ANP" in text
    assert "86.50 % ± 0.71" in text
    assert "--only '*/content/app/anp/0'" in text
    assert browser.value(f"{DETAIL}.querySelector('svg.spark path') !== null")
    box = browser.value(f"(at => [at.left, at.top, at.right, at.bottom])({DETAIL}.getBoundingClientRect())")
    assert box[0] >= 0
    assert box[1] >= 0
    assert box[2] <= 1200
    assert box[3] <= 800
    _point_at(browser, "h1")
    _wait(browser, f"{DETAIL}.hidden")
    assert browser.complaints() == []


def test_details_work_from_the_keyboard(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["measured"], width=1200, scheme="dark")
    # The last heading of the table is the stop before its numbers.
    browser.value("[...document.querySelectorAll('table.paper')[0].querySelectorAll('.sort')].at(-1).focus()")
    _press(browser, "Tab")
    assert browser.value("document.activeElement.className") == "value"
    assert "Content, Vanilla: BA before attack" in browser.value(f"{DETAIL}.innerText")
    _press(browser, "ArrowRight")
    _press(browser, "ArrowDown")
    assert "Content, EW: WSR before attack" in browser.value(f"{DETAIL}.innerText")
    _press(browser, "Enter")
    assert browser.value("document.activeElement.id") == "detail"
    _press(browser, "Escape")
    assert browser.value(f"{DETAIL}.hidden")
    assert browser.value("document.activeElement.dataset.detail") == "d-cifar10-cpu-1-1"
    # A table is one stop of the Tab key, however many numbers it has.
    assert (
        browser.value("document.querySelectorAll('table.paper')[0].querySelectorAll('.value[tabindex=\"0\"]').length")
        == 1
    )


def test_a_click_keeps_the_detail_open_until_it_is_closed(browser: Page, pages: dict[str, Path]) -> None:
    browser.show(pages["measured"], width=360, scheme="light")
    browser.value("document.querySelector('.value').click()")
    _point_at(browser, "h1")
    assert not browser.value(f"{DETAIL}.hidden")
    # On a narrow screen it is a sheet at the bottom, as wide as the screen.
    assert browser.value(f"(at => [at.left, at.right])({DETAIL}.getBoundingClientRect())") == [0, 360]
    browser.value(f"{DETAIL}.querySelector('.close').click()")
    assert browser.value(f"{DETAIL}.hidden")


def test_a_narrow_screen_names_the_group_above_its_rows(browser: Page, pages: dict[str, Path]) -> None:
    names = "['tr.band', 'tbody th.shared']"
    shown = f"{names}.map(one => getComputedStyle(document.querySelector(one)).display)"
    browser.show(pages["reported"], width=360, scheme="light")
    assert browser.value(shown) == ["table-row", "none"]
    browser.show(pages["reported"], width=1200, scheme="light")
    assert browser.value(shown) == ["none", "table-cell"]
