"""The page of tables as text: real tables, one script that the policy names, everything escaped."""

import base64
import hashlib
import html
import re
import sys

import pytest

from indelible.bench.measurement import results_of
from indelible.report import measured_tables, reported_tables
from indelible.report.documents import as_html
from tests.report.results import make_cell, make_results
from tests.report.test_run_page import _outline


@pytest.fixture(scope="module")
def reported() -> str:
    return as_html(reported_tables())


@pytest.fixture(scope="module")
def measured() -> str:
    return as_html(measured_tables([results_of(make_results(seeds=(0, 1)), "x")]))


def _behind(page: str, name: str) -> str:
    """Return what the page says behind one number."""
    (found,) = re.findall(rf'<template id="{re.escape(name)}">(.*?)</template>', page, re.DOTALL)
    return str(found)


def _lists(text: str) -> list[dict[str, str]]:
    """Return the lists of names and values in a text."""
    return [
        {name.replace("<wbr>", ""): value for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", part)}
        for part in re.findall(r'<dl class="facts">(.*?)</dl>', text, re.DOTALL)
    ]


def test_the_three_main_tables_are_real_tables(reported: str) -> None:
    outline = _outline(reported)
    assert outline.headings[0] == 1
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.seen.count("caption") == 6
    assert reported.count('<table class="paper">') == 6
    assert reported.count('scope="rowgroup" rowspan="4"') == 18
    assert reported.count('<th scope="row">APP</th>') == 18
    assert "<strong>96.63</strong>" in reported
    assert (
        "nothing was run for this page. APP keeps the highest WSR after attack in 17 of 18 cases on CIFAR-10"
        in reported
    )


def test_nothing_is_loaded_and_only_the_pages_own_script_may_run(reported: str) -> None:
    outline = _outline(reported)
    assert outline.loaded == []
    scripts = re.findall(r"<script>(.*?)</script>", reported, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', reported)
    assert policy is not None
    assert policy[1] == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digests[0]}'"
    )  # fmt: skip
    assert len(scripts) == 1
    assert not re.search(r"\son\w+=", reported)


def test_a_measured_cell_shows_both_numbers_and_the_difference(measured: str) -> None:
    assert (
        '<span class="own"><strong>90.50</strong><span class="sd"> ± 0.71</span> <span class="sign good" role="img" '
        'aria-label="owned for 2 of 2 seeds, largest p = 1e-12" '
        'title="owned for 2 of 2 seeds, largest p = 1e-12">2/2 ✓</span></span>'
        '<span class="worst">p ≤ 1e-12</span>'
        '<span class="beside"><strong>96.63</strong> <span class="chip lo2">−6.13</span></span>'
    ) in measured
    assert 'data-value="0.905"' in measured


def test_behind_a_cell_stand_seeds_curve_settings_and_command(measured: str) -> None:
    grid = measured_tables([results_of(make_results(seeds=(0, 1)), "x")])[0]
    place = next(number for number, column in enumerate(grid.columns) if column.title == "ANP")
    row = next(number for number, row in enumerate(grid.rows) if row.labels == ("Content", "APP"))
    behind = _behind(measured, f"d-{grid.name}-{row}-{place}")
    assert "<h3>Content, APP: WSR after ANP</h3>" in behind
    facts, settings = _lists(behind)
    assert facts == {
        "Measured": "86.50 % ± 0.71", "Seeds": "2", "Verdict": "owned for 2 of 2 seeds, largest p = 1e-12",
        "Reported": "99.56 %", "Difference": "−13.06 points",
    }  # fmt: skip
    seeds = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>.*</tr>", behind)]
    assert seeds[2] == ["1", "80.00", "87.00", "owned", "1e-12", "1 min 15 s", "640"]
    assert '<svg class="spark"' in behind
    assert settings == {"attack": "anp", "attack_settings.epochs": "30", "attack_settings.lr": "0.05"}
    commands = re.findall(r"<pre><code>(.*?)</code></pre>", behind)
    assert html.unescape(commands[0]) == "indelible bench run cifar10-cpu --only '*/content/app/anp/0'"
    assert f'data-detail="d-{grid.name}-{row}-{place}"' in measured


def test_every_number_has_its_detail(measured: str, reported: str) -> None:
    for page in (measured, reported):
        asked = re.findall(r'data-detail="([^"]+)"', page)
        assert sorted(asked) == sorted(re.findall(r'<template id="([^"]+)"', page))


def test_behind_a_reported_number_stands_where_the_paper_has_it() -> None:
    grid = reported_tables(["cifar10"])[1]
    row = next(number for number, row in enumerate(grid.rows) if row.labels == ("Unrelated", "CW"))
    page = as_html([grid])
    (facts,) = _lists(_behind(page, f"d-{grid.name}-{row}-{len(grid.columns) - 1}"))
    assert facts["Note"] == "The paper prints 4.60; the mean over its own row gives 4.09."
    (facts,) = _lists(_behind(page, f"d-{grid.name}-{row}-1"))
    assert facts == {
        "Reported": "91.17 %", "WSR in the same place": "9.51 %", "In the paper": "Table 1 and appendix",
    }  # fmt: skip


def test_strings_of_users_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    cells = [make_cell(evil, evil, attack, wsr=0.5, own={evil: evil}) for attack in (None, "ft")]
    for cell in cells:
        cell |= {
            "dataset": evil,
            "architecture": evil,
            "command": evil,
            "curve": {"name": evil, "rows": [{"value": 1, "ba": 1}]},
        }
    page = as_html(measured_tables([results_of({"preset": evil, "cells": cells}, "x")]), title=evil)
    assert _outline(page).seen.count("script") == 1
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in page


def test_the_same_numbers_give_the_same_bytes(reported: str) -> None:
    assert as_html(reported_tables()) == reported


def test_without_matplotlib_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = as_html(reported_tables(["cifar10"]))
    _outline(page)
    assert "The figures were left out" in page
    assert 'class="chart"' not in page
