"""Figures: every kind has one, its data are the analysis' own, and it follows the page into light and dark."""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from indelible.analyze.analysis import ANALYSES, write_analysis
from indelible.base.errors import InputError
from indelible.report import write_report
from indelible.report.drawing import BOTH, COLUMN, as_inline
from indelible.report.figures import FIGURES, write_figure
from tests.report.made_analyses import ALL
from tests.report.runs import make_demo

mpl = pytest.importorskip("matplotlib")


def test_every_kind_has_a_figure_and_a_hand_made_example() -> None:
    assert set(ANALYSES) == FIGURES.keys() == ALL.keys()


@pytest.mark.parametrize("name", sorted(ALL))
def test_inline_in_the_pages_colours(name: str) -> None:
    drawing = FIGURES[name].drawing(ALL[name])
    assert drawing.width in {COLUMN, BOTH}
    svg = as_inline(drawing, "one")
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    assert root.get("aria-label") == drawing.alt
    assert svg == as_inline(drawing, "one")
    assert not re.search(r"#0f0e[0-9a-f]{2}", svg)
    assert "var(--" in svg
    assert "<script" not in svg
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg)) <= ids


def test_the_landscape_shows_its_numbers() -> None:
    """By data, not by pixels: the images of the panels are the rates in percent, on one scale."""
    figure = mpl.figure.Figure(layout="constrained")
    from indelible.report.page_look import LIGHT

    FIGURES["landscape"].drawing(ALL["landscape"]).plot(figure, LIGHT)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert [image.get_array().tolist() for image in images[:1]] == [
        [[100.0, 90.0, 10.0], [100.0, 80.0, 10.0], [90.0, 40.0, 0.0]]
    ]
    assert len(images) == 4
    assert {image.get_clim() for image in images} == {(0, 100)}
    dot, star = figure.axes[0].lines
    assert (dot.get_xydata().tolist(), dot.get_color(), dot.get_marker()) == ([[0.0, 0.0]], "black", "o")
    assert (star.get_xydata().tolist(), star.get_marker()) == ([[0.0, 0.05]], "*")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture, drawn = write_figure(ALL["curves"], tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    root = ET.fromstring(drawn.read_text(encoding="utf-8"))  # noqa: S314 - our own text
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = {"".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert words >= {"WSR in %", "BA in %", "app after FT", "ε, size of the perturbation relative to the weights"}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"indelible\[plots\]"):
        write_figure(ALL["curves"], tmp_path)


def test_the_report_shows_analyses(tmp_path: Path) -> None:
    for name, analysis in ALL.items():
        write_analysis(tmp_path / "analysis" / name, analysis)
    runs = [make_demo(tmp_path / "runs")]
    plain = write_report(runs, tmp_path / "plain.html").read_text(encoding="utf-8")
    assert 'id="analyses"' not in plain
    page = write_report(runs, tmp_path / "page.html", analyses=[tmp_path / "analysis"]).read_text(encoding="utf-8")
    assert page.count('<figure class="analysis') == len(ALL)
    assert "at the relative distance 0.0123 (BA 70.0 %)" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    hidden = write_report(runs, tmp_path / "h.html", analyses=[tmp_path / "analysis"], samples=False)
    assert hidden.read_text(encoding="utf-8").count('<figure class="analysis') == len(ALL) - 1
