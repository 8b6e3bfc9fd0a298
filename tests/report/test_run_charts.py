"""Charts: their numbers, their SVG, their colours."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from indelible.report.charts import draw, panels
from indelible.report.model_stages import collect
from indelible.report.page_look import DARK, DIFFERENCES, LIGHT
from tests.report.runs import make_demo, make_run


def test_each_quantity_has_a_chart_and_methods_are_its_series(tmp_path: Path) -> None:
    training, attack = panels(collect([make_demo(tmp_path)]))
    assert [(chart.title, chart.unit, len(chart.series)) for chart in training.charts] == [
        ("Training loss", "nats", 4),
        ("Benign accuracy (BA)", "%", 4),
        ("Watermark success rate (WSR)", "%", 3),
    ]
    assert [label for label, _ in training.legend] == [
        "Vanilla", "c-BN only (eps 0)", "APP with c-BN", "Unmarked model",
    ]  # fmt: skip
    assert attack.title == "Attack: FT"
    # The attacker's history knows no WSR: it is measured before the attack and after it.
    assert np.allclose(attack.charts[2].series[0].points, [(0.0, 98.76), (2.0, 12.34)])
    assert "Vanilla at 12.3 %" in attack.charts[2].alt


def test_phases_are_numbered_through(tmp_path: Path) -> None:
    rows = [{"epoch": epoch, "loss": 1.0 / (row + 1)} for row, epoch in enumerate((1, 2, 1, 2, 3))]
    (panel,) = panels(collect([make_run(tmp_path / "v", history=rows)]))
    assert [epoch for epoch, _ in panel.charts[0].series[0].points] == [1, 2, 3, 4, 5]


def test_entries_that_differ_in_seed_share_a_look(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed, history=[{"epoch": 1, "loss": 1.0}]) for seed in (0, 1)]
    (panel,) = panels(collect(runs))
    assert len({series.look for series in panel.charts[0].series}) == 1
    assert panel.legend == (("Vanilla", 0),)


def test_a_chart_is_svg_in_the_pages_colours_with_its_own_ids(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = panels(collect([make_demo(tmp_path)]))[0].charts[0]
    svg = draw(chart, "one")
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    assert root.get("aria-label") == chart.alt
    assert svg == draw(chart, "one")
    assert not re.search(r"#0f0e[0-9a-f]{2}", svg)
    assert {"var(--s0)", "var(--s1)", "var(--s2)", "var(--s3)"} <= set(re.findall(r"var\(--s\d\)", svg))
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    assert ids
    assert all(name.startswith("one-") for name in ids)
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg)) <= ids
    assert "<text" in svg
    assert "<metadata" not in svg


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_wcag_aa(palette: dict[str, str]) -> None:
    for ground in ("ground", "raised"):
        for text in ("ink", "muted", "link", "good", "warn"):
            assert _contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for tint in ("lo1", "lo2", "lo3", "hi1", "hi2", "hi3"):
        assert _contrast(palette["ink"], palette[tint]) >= 4.5, tint
    for series in ("s0", "s1", "s2", "s3", "s4", "s5"):
        assert _contrast(palette[series], palette["ground"]) >= 3.0, series
    assert LIGHT.keys() == DARK.keys()


def test_differences_can_be_read_on_paper() -> None:
    assert all(_contrast(colour, "#ffffff") >= 4.5 for colour in DIFFERENCES.values())
    assert len(set(DIFFERENCES.values())) == len(DIFFERENCES)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_deeper_tints_stand_out_more(palette: dict[str, str]) -> None:
    for side in ("lo", "hi"):
        steps = [_contrast(palette[f"{side}{step}"], palette["ground"]) for step in (1, 2, 3)]
        assert 1 < steps[0] < steps[1] < steps[2]
