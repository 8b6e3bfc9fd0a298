"""The page of an evidence bundle: what was found, escaped, complete in itself; it holds no secret."""

import json
from pathlib import Path

import pytest

from indelible.evidence import check_bundle
from indelible.report.bundle_page import render_bundle, write_page
from tests.evidence.cases import Case
from tests.evidence.conftest import case
from tests.report.browser import CHROMIUM, opened

__all__ = ["case"]


def test_a_bundle_that_holds(case: Case) -> None:
    checked = check_bundle(case.bundle, roots=case.roots)
    page = render_bundle(case.bundle, checked)
    assert "The evidence is complete and unchanged since it was signed: all 13 checks passed." in page
    assert "The verdict in it is OWNED" in page
    for file in checked.files:
        assert f">{file.name}<" in page
    assert checked.claim is not None
    assert checked.claim["verdict"]["sentence"].split(";")[0] in page
    for step in checked.steps:
        assert f">{step.name}<" in page
    assert page.count("<figure>") == 12
    assert "Only the watermark links" in page
    assert case.key.secret.hex() not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_a_bundle_that_does_not_hold_shows_nothing_else(case: Case, tmp_path: Path) -> None:
    bundle = case.copy(tmp_path / "b")
    (bundle / "claim.json").write_bytes(b"{}")
    page = render_bundle(bundle, check_bundle(bundle))
    assert "The evidence does not pass the check: the step “manifest” fails. No verdict follows from it." in page
    assert "<figure>" not in page
    assert "Derived from" not in page


def test_words_of_the_claimant_are_escaped(case: Case, tmp_path: Path) -> None:
    def hostile(document: object) -> None:
        assert isinstance(document, dict)
        document["created"] = "<script>alert(1)</script>"

    bundle = case.resigned(tmp_path / "b", "claim.json", hostile)
    checked = check_bundle(bundle)
    assert checked.holds, "a claimant may write what he likes there"
    page = render_bundle(bundle, checked)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    json.dumps(checked.to_json())


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary")
def test_in_a_browser(case: Case, tmp_path: Path) -> None:
    page = write_page(case.bundle, check_bundle(case.bundle, roots=case.roots), tmp_path / "page.html")
    with opened(tmp_path / "profile") as browser:
        for width, scheme in ((360, "light"), (1200, "dark")):
            browser.show(page, width=width, scheme=scheme)
            assert browser.requests() == [page.resolve().as_uri()]
            assert browser.complaints() == []
            assert browser.value("document.documentElement.scrollWidth") <= width
            assert browser.value("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
